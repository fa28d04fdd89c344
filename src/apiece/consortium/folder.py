"""The folder of a consortium as it is made: keys and certificates, and what each party runs, filled in.

    consortium.toml                         the server's address
    ca.crt, ca.key                          the authority; its key is needed for `renew` alone
    server/                                 what the coordinator's machine needs
    nodes/NAME/                             what is sent to the party of that name: nothing in it is secret
    chart/                                  the same for Kubernetes
    README.md                               what each party does and trusts
"""

from __future__ import annotations

import datetime as dt
import json
import shlex
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import tomli_w

from apiece import __version__
from apiece.consortium import naming
from apiece.consortium.certificates import Validity, authority, certify, checked, spoken
from apiece.consortium.naming import Server
from apiece.consortium.private import PUBLIC
from apiece.errors import UserError
from apiece.system.files import atomic_write, make_folder, read_toml, replace, sync_folder

TEMPLATES = Path(__file__).parent / "templates"
SETTINGS = "consortium.toml"
BOTH = "Containerfile"  # of the server and of a node: one image
PROGRAM = "/opt/apiece/bin/apiece"
SERVE = "serve /etc/apiece/consortium --state /var/lib/apiece"
JOIN = "join /etc/apiece/node --data /srv/apiece/data.parquet --state /var/lib/apiece"
COMMANDS = {
    "serve": f"{PROGRAM} {SERVE}",
    "join": f"{PROGRAM} {JOIN}",
    "make_key": f"{PROGRAM} join /etc/apiece/node --make-key",
    "serve_words": json.dumps(SERVE.split()),
    "join_words": json.dumps(JOIN.split()),
    "version": __version__,
}


def make(folder: Path, names: Iterable[str], server: Server, now: dt.datetime) -> Validity:
    """Make the folder of a consortium, whole or not at all; UserError if there is one already."""
    _refuse(folder)
    make_folder(folder.parent)
    half = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        half.chmod(0o755)
        for part in ("server", "nodes"):
            (half / part).mkdir()
        authority(half, now)
        certify(half, server.host, now)
        _put(half / SETTINGS, tomli_w.dumps(server._asdict()))
        words = {"server": server, "folder": shlex.quote(folder.name), "authority": spoken(half / "ca.crt")}
        _fill(TEMPLATES / "server", half / "server", **words)
        _fill(TEMPLATES / "chart", half / "chart", **words)
        for name in names:
            _node(half, name, server)
        validity = checked(half, server.host, now)
        _put(half / "README.md", _filled(TEMPLATES / "README.md", **words, validity=validity))
        replace(half, folder)
    finally:
        with suppress(OSError):
            shutil.rmtree(half)
    sync_folder(folder.parent)
    return validity


def add(folder: Path, name: str) -> None:
    """Make the folder of one more node; UserError if the consortium has a node of that name."""
    server = address(folder)
    if (folder / "nodes" / naming.node(name)).exists():
        raise UserError(f"{folder / 'nodes' / name} exists: give a name that no node has.")
    _node(folder, name, server)


def renew(folder: Path, now: dt.datetime) -> Validity:
    """Make the server's certificate anew."""
    server = address(folder)
    certify(folder, server.host, now)
    return checked(folder, server.host, now)


def address(folder: Path) -> Server:
    """Where the server of a consortium is; UserError if the folder is no consortium's."""
    if not (folder / SETTINGS).is_file():
        raise UserError(f"{folder} is no consortium's folder, without {SETTINGS}: make one by apiece deploy init.")
    table = read_toml(folder / SETTINGS)
    host, port = table.get("host"), table.get("port")
    if not isinstance(host, str) or not isinstance(port, int):
        raise UserError(f"{folder / SETTINGS} has no host and port of the server: restore it from a backup.")
    return naming.server(str(Server(host, port)))


def _refuse(folder: Path) -> None:
    if blocked := next((above for above in (folder, *folder.parents) if above.exists() and not above.is_dir()), None):
        raise UserError(f"{blocked} is a file: give a folder that does not exist, as in apiece deploy init team/.")
    if folder.is_dir() and any(folder.iterdir()):
        raise UserError(
            f"{folder} exists and is not overwritten, because its keys could not be had again: give another folder, or "
            f"`apiece deploy add {folder} NAME` for one more node."
        )


def _node(folder: Path, name: str, server: Server) -> None:
    """What is sent to one party, whole or not at all."""
    half = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder))
    try:
        half.chmod(0o755)
        _put(half / "ca.crt", (folder / "ca.crt").read_text("ascii"))
        _put(half / "node.toml", tomli_w.dumps({"name": name, "server": str(server)}))
        words = {"name": name, "server": server, "authority": spoken(folder / "ca.crt")}
        _fill(TEMPLATES / "node", half, **words)
        _put(half / BOTH, _filled(TEMPLATES / "server" / BOTH, **words))
        replace(half, folder / "nodes" / name)
    finally:
        with suppress(OSError):
            shutil.rmtree(half)
    sync_folder(folder / "nodes")


def _fill(source: Path, target: Path, **words: Any) -> None:
    """Every template below a folder, filled in, below another folder."""
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        if path.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            _put(place, _filled(path, **words))


def _filled(path: Path, **words: Any) -> str:
    """A template with `<< words >>` filled in: `{{ }}` is what charts write for themselves, `[[ ]]` is TOML."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    plain = Environment(
        loader=FileSystemLoader(TEMPLATES),
        variable_start_string="<<", variable_end_string=">>", block_start_string="<%", block_end_string="%>",
        comment_start_string="<#", comment_end_string="#>", undefined=StrictUndefined, keep_trailing_newline=True,
    )  # fmt: skip
    return plain.get_template(path.relative_to(TEMPLATES).as_posix()).render(**COMMANDS, **words)


def _put(path: Path, text: str) -> None:
    atomic_write(path, text.encode(), PUBLIC)
