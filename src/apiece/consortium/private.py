"""Private keys as files that nobody else may read, and fingerprints that people read out."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from apiece.errors import UserError

PRIVATE, PUBLIC = 0o600, 0o644


def load(path: Path) -> ec.EllipticCurvePrivateKey:
    """The private key of a file; UserError if everyone may read the file, and if it has no such key."""
    try:
        mode, data = stat.S_IMODE(path.stat().st_mode), path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): it holds a private key of this machine.") from None
    if os.name == "posix" and mode & stat.S_IRWXO:
        raise UserError(f"{path} can be read by everyone on this machine: chmod 600 it, and make a new key if one did.")
    opened = serialization.load_ssh_private_key if b"OPENSSH" in data[:40] else serialization.load_pem_private_key
    try:
        found = opened(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise UserError(f"{path} is no private key that can be read: restore it, or make a new one.") from None
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise UserError(f"{path} is a key of another kind: it must be an elliptic one, as apiece makes it.")
    return found


def text(of: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    """The text of a private key, not encrypted."""
    return of.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def groups(digest: bytes) -> str:
    """The first 128 bits of a digest in eight groups of four digits.

    >>> groups(bytes(range(32)))
    '0001 0203 0405 0607 0809 0a0b 0c0d 0e0f'
    """
    return digest[:16].hex(" ", 2)
