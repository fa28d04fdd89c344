"""A node's key: made on the node, where it stays; what leaves is a request that the key itself has signed.

The key is of the curve P-384 in the form of OpenSSH, as `flower-supernode` takes it.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from pathlib import Path
from typing import NamedTuple

import tomli_w
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from apiece.consortium import naming
from apiece.consortium.certificates import spoken
from apiece.consortium.naming import Server
from apiece.consortium.private import PRIVATE, PUBLIC, groups, text
from apiece.errors import UserError
from apiece.system.files import atomic_write, read_toml

KEY, REQUEST = "node.key", "request.toml"
LARGEST = 10_000  # bytes of a request: nobody's is longer than a tenth of it
SIGNED = b"request to an apiece consortium, 1"  # what a node signs for Flower begins otherwise


class Request(NamedTuple):
    """What a node asks for: to be known by this name and this public key (a line as in `key.pub`)."""

    name: str
    public_key: str


def make_key(folder: Path) -> Request:
    """Make the key of the node whose folder this is (`node.toml` says its name), and the request for the coordinator.

    Writes `node.key` (mode 0600) and `request.toml`. UserError if there is a key, or if the folder is no node's.
    """
    name, authority = node_of(folder)[0], spoken(folder / "ca.crt")
    if (folder / KEY).exists():
        raise UserError(f"{folder / KEY} exists and is not made anew: send request.toml, or remove both.")
    key = ec.generate_private_key(ec.SECP384R1())
    request = Request(name, public(key.public_key()))
    signature = key.sign(_signed(request, authority), ec.ECDSA(hashes.SHA384()))
    table = request._asdict() | {
        "authority": authority,
        "fingerprint": fingerprint(request.public_key),
        "signature": b64encode(signature).decode(),
    }
    said = "# A request to the coordinator: nothing in it is secret.\n" + tomli_w.dumps(table)
    atomic_write(folder / REQUEST, said.encode(), PUBLIC)
    atomic_write(folder / KEY, text(key, serialization.PrivateFormat.OpenSSH), PRIVATE)
    return request


def read_request(path: Path, authority: str) -> Request:
    """The request of a file; UserError unless the key in it signed it, for the authority of this fingerprint."""
    if path.is_file() and path.stat().st_size > LARGEST:
        raise UserError(f"{path} is no request: it has more than {LARGEST:,} bytes; give a node's request.toml.")
    table = read_toml(path)
    fields = ("name", "public_key", "authority", "fingerprint", "signature")
    if lacking := [field for field in fields if not isinstance(table.get(field), str)]:
        raise UserError(f"{path} is no request: it lacks {', '.join(lacking)}; give a node's request.toml.")
    request = Request(naming.node(table["name"]), one_line(table["public_key"], path))
    try:
        if table["fingerprint"] != fingerprint(request.public_key):
            raise ValueError("another fingerprint")
        signature = b64decode(table["signature"], validate=True)
        key(request.public_key).verify(signature, _signed(request, table["authority"]), ec.ECDSA(hashes.SHA384()))
    except (ValueError, InvalidSignature):
        raise UserError(f"{path}: its key did not sign it, so it was changed on its way: have it sent again.") from None
    if table["authority"] != authority:
        raise UserError(
            f"{path} is a request to the consortium with the authority {table['authority']}, and this one has "
            f"{authority}: have {request.name} make its key in the folder of this consortium."
        )
    return request


def key(public_key: str) -> ec.EllipticCurvePublicKey:
    """A public key from its line; ValueError if it is none of P-384."""
    try:
        found = serialization.load_ssh_public_key(public_key.encode())
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from None
    if not isinstance(found, ec.EllipticCurvePublicKey) or not isinstance(found.curve, ec.SECP384R1):
        raise ValueError("no key of the curve P-384")
    return found


def one_line(public_key: str, path: Path) -> str:
    """A public key as its kind and its number alone, so that one key has one line; UserError if it is none."""
    try:
        return public(key(public_key))
    except ValueError:
        raise UserError(f"{path} has no public key of the curve P-384: have the node make one by apiece.") from None


def public(of: ec.EllipticCurvePublicKey) -> str:
    """The line of a public key."""
    return of.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def fingerprint(public_key: str) -> str:
    """The fingerprint of a public key, to be read out: of the SHA-256 that `ssh-keygen -l` prints whole, in base 64."""
    return groups(hashlib.sha256(b64decode(public_key.split()[1])).digest())


def _signed(request: Request, authority: str) -> bytes:
    """What the signature of a request covers: all of it."""
    return b"\n".join((SIGNED, request.name.encode(), request.public_key.encode(), authority.encode()))


def node_of(folder: Path) -> tuple[str, Server]:
    """A node's name and its server, from the node's folder; UserError if it is none."""
    if not (folder / "node.toml").is_file():
        raise UserError(f"{folder} is no folder of a node, without node.toml: give the one that the coordinator sent.")
    table = read_toml(folder / "node.toml")
    name, server = table.get("name"), table.get("server")
    again = "ask the coordinator for the folder again"
    if not isinstance(name, str):
        raise UserError(f"{folder / 'node.toml'} has no name: {again}.")
    if not isinstance(server, str):
        raise UserError(f"{folder / 'node.toml'} of {naming.node(name)} has no server: {again}.")
    return naming.node(name), naming.server(server)
