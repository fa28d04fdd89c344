"""Which nodes the coordinator admits: the list `admitted.toml`, by name and public key.

The running side reads it by `admitted` and registers exactly these keys with the SuperLink.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w
from filelock import FileLock, Timeout

from apiece.consortium import naming
from apiece.consortium.certificates import spoken
from apiece.consortium.keys import Request, fingerprint, one_line, read_request
from apiece.consortium.private import PUBLIC
from apiece.errors import UserError, nearest
from apiece.system.files import atomic_write, read_toml, remove

LIST, KEY = "admitted.toml", "key.pub"
HEAD = "# The nodes of the consortium, by `apiece deploy admit` and `revoke`; nothing in it is secret.\n"


class Node(NamedTuple):
    """An admitted node: its name, its public key (the line of an OpenSSH file), the key's fingerprint."""

    name: str
    public_key: str
    fingerprint: str


class Entry(NamedTuple):
    """A line of the list: a node's key, since when it has stood there, and when it was revoked ("" if it was not)."""

    name: str
    public_key: str
    admitted: str
    revoked: str = ""


def admitted(folder: Path) -> tuple[Node, ...]:
    """The admitted nodes of a consortium's folder, by name; UserError if the list cannot be used."""
    return tuple(
        Node(entry.name, entry.public_key, fingerprint(entry.public_key))
        for entry in sorted(_entries(folder))
        if not entry.revoked
    )


def admit(folder: Path, path: Path, now: dt.datetime, replace: bool = False, said: str = "") -> Node:
    """Admit the node of a request; `said`: the fingerprint that the party read out ("": it is not compared).

    UserError if the request is not sound, if its name or its key is another's, if the key was revoked, and if the node
    has another key unless it is to `replace` it.
    """
    with _alone(folder):
        entries = _entries(folder)
        request = read_request(path, spoken(folder / "ca.crt"))
        mine = Node(*request, fingerprint(request.public_key))
        _known(folder, request.name)
        _refuse_key(entries, request)
        if said and "".join(said.split()).lower() != mine.fingerprint.replace(" ", ""):
            raise UserError(
                f"{path} has the key with the fingerprint {mine.fingerprint}, and not {said}: do not admit it before "
                "the party reads out the same."
            )
        earlier = next((entry for entry in entries if entry.name == request.name and not entry.revoked), None)
        if earlier and earlier.public_key != request.public_key and not replace:
            raise UserError(
                f"{request.name} has been admitted with the key {fingerprint(earlier.public_key)}: give --replace if "
                "the party says that it made a new one, and the old one will be revoked."
            )
        if not earlier or earlier.public_key != request.public_key:
            entries = _revoked(entries, request.name, now) + [Entry(*request, f"{now:%Y-%m-%dT%H:%M:%SZ}")]
            _write(folder, entries)
        atomic_write(folder / "nodes" / request.name / KEY, f"{request.public_key}\n".encode(), PUBLIC)
        return mine


def revoke(folder: Path, name: str, now: dt.datetime) -> None:
    """Take a node off the list: its key is never admitted again; UserError if the list does not have it."""
    with _alone(folder):
        entries = _entries(folder)
        if naming.node(name) not in {entry.name for entry in entries if not entry.revoked}:
            _known(folder, name)
            raise UserError(f"{name} is not admitted, so there is nothing to revoke: see {folder / LIST}.")
        _write(folder, _revoked(entries, name, now))
        if (folder / "nodes" / name / KEY).exists():
            remove(folder / "nodes" / name / KEY)


def _known(folder: Path, name: str) -> None:
    names = {path.parent.name for path in folder.glob("nodes/*/node.toml")}
    if name not in names:
        raise UserError(f"{name!r} is no node of this consortium; {nearest(name, names)}")


def _refuse_key(entries: list[Entry], request: Request) -> None:
    """Refuse a key that is another node's, and one that was revoked."""
    for entry in entries:
        if entry.public_key == request.public_key and entry.name != request.name:
            raise UserError(f"{request.name} asks with the key of {entry.name}: each node makes a key of its own.")
        if entry.public_key == request.public_key and entry.revoked:
            raise UserError(
                f"the key of {request.name} was revoked on {entry.revoked[:10]}: have the node remove node.key and "
                "request.toml, and make a new key."
            )


def _revoked(entries: list[Entry], name: str, now: dt.datetime) -> list[Entry]:
    """The list with every key of a node revoked."""
    said = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    return [entry._replace(revoked=said) if entry.name == name and not entry.revoked else entry for entry in entries]


def _entries(folder: Path) -> list[Entry]:
    if not (folder / "consortium.toml").is_file():
        raise UserError(f"{folder} is no consortium's folder, without consortium.toml: make one by apiece deploy init.")
    path = folder / LIST
    if not path.exists():
        return []
    rows = read_toml(path).get("node", [])
    entries = [_entry(row, path) for row in (rows if isinstance(rows, list) else [rows])]
    for of in ([e.name for e in entries if not e.revoked], [e.public_key for e in entries]):
        if twice := sorted({word for word in of if of.count(word) > 1}):
            raise UserError(f"{path} has {twice[0]} twice: restore it from a backup.")
    return entries


def _entry(row: Any, path: Path) -> Entry:
    try:
        entry = Entry(**row)
    except TypeError:
        entry = None
    if entry is None or not all(isinstance(value, str) for value in entry):
        raise UserError(f"{path} has a node that is none: restore it from a backup, or admit the nodes again.")
    return entry._replace(name=naming.node(entry.name), public_key=one_line(entry.public_key, path))


def _write(folder: Path, entries: list[Entry]) -> None:
    rows = [{key: value for key, value in entry._asdict().items() if value} for entry in sorted(entries)]
    atomic_write(folder / LIST, (HEAD + tomli_w.dumps({"node": rows})).encode(), PUBLIC)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder: of two commands at once, one would undo what the other did."""
    if not folder.is_dir():
        raise UserError(f"{folder} is no consortium's folder: make one by apiece deploy init.")
    try:
        with FileLock(folder / ".lock", timeout=10):
            yield
    except Timeout:
        raise UserError(f"another command is at work on {folder}: let it end.") from None
