"""`python -m apiece` runs the command `apiece`."""

import os
import sys


def main() -> None:
    """The command `apiece`. Ctrl-C before it listens to signals, as while it is imported, ends it like later ones."""
    try:
        from apiece.cli import main

        main()
    except KeyboardInterrupt:
        print("apiece: interrupted.", file=sys.stderr, flush=True)
        os._exit(130)  # after an interruption in `exec`, as of a dataclass, Python would end with the signal itself


if __name__ == "__main__":
    main()
