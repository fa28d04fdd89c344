"""`python -m apiece` runs the command `apiece`."""

import sys


def main() -> None:
    """The command `apiece`. Ctrl-C before it listens to signals, as while it is imported, ends it like later ones."""
    try:
        from apiece.cli import main

        main()
    except KeyboardInterrupt:
        print("apiece: interrupted.", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
