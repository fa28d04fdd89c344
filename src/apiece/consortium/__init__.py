"""The folder of a consortium: its certificate authority, its server's certificate, and the keys of its nodes.

Nothing here runs a server or a node: `apiece serve` and `apiece join` read what stands here.
"""

from __future__ import annotations

from apiece.errors import UserError, with_extra


def library() -> None:
    """Raise UserError where the package `cryptography` is not installed: what makes keys and certificates needs it."""
    try:
        import cryptography.x509  # noqa: F401
    except ImportError as error:
        raise UserError(f"{error.name} is needed for keys and certificates: {with_extra('flower')}.") from None
