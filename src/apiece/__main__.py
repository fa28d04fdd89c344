"""`python -m apiece` is `apiece`."""

from apiece.cli import main

main()
