"""The commands on a consortium's folder: `apiece deploy init | add | admit | revoke | renew`, and a node's key."""

from __future__ import annotations

import datetime as dt
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

Consortium = Annotated[str, arg(metavar="CONSORTIUM", help="The consortium's folder.")]
Name = Annotated[str, arg(metavar="NAME", help="The node's name.")]


@dataclass(frozen=True)
class Init:
    """Make a consortium's folder: an authority, the server's certificate, and a folder for each node."""

    folder: Positional[Annotated[str, arg(metavar="CONSORTIUM", help="The folder to make.")]]
    nodes: Annotated[str, arg(metavar="NAME,NAME,...")]
    """The nodes' names, with commas between them: small letters, digits and hyphens."""
    server: Annotated[str, arg(metavar="HOST:PORT")] = "localhost:8443"
    """Where nodes will reach the server; the default serves to try it on one machine."""

    def __call__(self) -> None:
        from apiece.consortium import certificates, folder, naming

        names, server = naming.nodes(self.nodes), naming.server(self.server)
        where = Path(self.folder)
        ends = folder.make(where, names, server, _now())
        print(f"{where}: an authority until {ends.authority:%Y-%m-%d}, and a certificate for {server.host} until")
        print(f"{ends.server:%Y-%m-%d}. The authority's fingerprint is {certificates.spoken(where / 'ca.crt')}.")
        print(f"Send each party its folder of {where / 'nodes'}; {where / 'README.md'} says how to go on.")
        if server.host in naming.LOCAL:
            print(f"Nodes on other machines cannot reach {server}: give --server HOST:PORT for those.")


@dataclass(frozen=True)
class Add:
    """Make the folder of one more node."""

    folder: Positional[Consortium]
    name: Positional[Name]

    def __call__(self) -> None:
        from apiece.consortium import folder

        folder.add(Path(self.folder), self.name)
        print(f"{Path(self.folder) / 'nodes' / self.name}: send this folder to the party.")


@dataclass(frozen=True)
class Admit:
    """Admit the node that made a request; its party should read out the fingerprint on the phone."""

    folder: Positional[Consortium]
    request: Positional[Annotated[str, arg(metavar="REQUEST", help="The request.toml that the party sent.")]]
    fingerprint: str = ""
    """What the party read out: a request with another key is then refused."""
    replace: bool = False
    """Revoke the key that the node has, and take the new one."""

    def __call__(self) -> None:
        from apiece.consortium import admission

        node = admission.admit(Path(self.folder), Path(self.request), _now(), self.replace, self.fingerprint)
        print(f"{node.name} is admitted with the key {node.fingerprint}.")
        if not self.fingerprint:
            undo = f"apiece deploy revoke {shlex.quote(self.folder)} {node.name}"
            print(f"If its party reads out another, revoke it: `{undo}`.")


@dataclass(frozen=True)
class Revoke:
    """Take a node off the list: its key is never admitted again."""

    folder: Positional[Consortium]
    name: Positional[Name]

    def __call__(self) -> None:
        from apiece.consortium import admission

        admission.revoke(Path(self.folder), self.name, _now())
        print(f"{self.name} is revoked.")


@dataclass(frozen=True)
class Renew:
    """Make the server's certificate anew, for another year; the authority's key is needed, and nodes need nothing."""

    folder: Positional[Consortium]

    def __call__(self) -> None:
        from apiece.consortium import folder

        ends = folder.renew(Path(self.folder), _now())
        print(f"The server's certificate is valid until {ends.server:%Y-%m-%d}: restart the server and its proxy.")


def make_key(folder: Path) -> None:
    """On a node: make its key, which stays there, and the request for the coordinator."""
    from apiece.consortium import certificates, keys

    request = keys.make_key(folder)
    print(f"{folder / keys.KEY}: the key of {request.name}; it stays on this machine.")
    mine = keys.fingerprint(request.public_key)
    print(f"{folder / keys.REQUEST}: send it to the coordinator, and read out on the phone: {mine}")
    print(f"The coordinator reads out the authority's: {certificates.spoken(folder / 'ca.crt')}")


DEPLOY = {"init": Init, "add": Add, "admit": Admit, "revoke": Revoke, "renew": Renew}


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
