"""`python -m driftless` is `driftless`."""

from driftless.cli import main

main()
