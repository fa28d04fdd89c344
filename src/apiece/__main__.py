"""`python -m apiece` runs the command `apiece`."""

from apiece.cli import main

main()
