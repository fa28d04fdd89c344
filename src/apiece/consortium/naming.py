"""What a node may be called, and where a server can be reached."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import NamedTuple

from apiece.errors import UserError

LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
NODE = re.compile(LABEL)  # a folder on every system, a name in every container system
HOST = re.compile(rf"(?=.{{1,253}}$){LABEL}(\.{LABEL})*")
PORT = re.compile("[1-9][0-9]{0,4}")
LOCAL = ("localhost", "127.0.0.1", "::1")


class Server(NamedTuple):
    """Where nodes reach the coordinator.

    >>> str(Server("fl.example.org", 8443)), str(Server("2001:db8::1", 8443))
    ('fl.example.org:8443', '[2001:db8::1]:8443')
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def node(text: str) -> str:
    """A node's name; UserError if it is none."""
    if not NODE.fullmatch(text):
        raise UserError(
            f"{text!r} is no name for a node: give up to 63 small letters, digits and hyphens, without a hyphen at "
            "either end, as in --nodes north,south,west."
        )
    return text


def nodes(text: str) -> tuple[str, ...]:
    """The names of a list with commas; UserError for a name that is none or stands there twice.

    >>> nodes("north, south")
    ('north', 'south')
    """
    names = tuple(node(name.strip()) for name in text.split(","))
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"--nodes names {', '.join(twice)} more than once: give each node a name of its own.")
    return names


def server(text: str) -> Server:
    """The host and the port of `HOST:PORT`; UserError if it is no such address, or none that a node can reach.

    >>> server("[2001:DB8::1]:8443")
    Server(host='2001:db8::1', port=8443)
    """
    host, colon, port = text.strip().lower().rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not PORT.fullmatch(port) or int(port) > 65535:
        raise UserError(f"--server {text!r} is no address: give a host and a port, as in fl.example.org:8443.")
    if address := _address(bare):
        if (address.version == 6) != (host == f"[{bare}]"):
            raise UserError(f"--server {text!r}: write an IPv6 address in brackets, and no other, as in [::1]:8443.")
        if address.is_unspecified or address.is_multicast:
            raise UserError(f"--server {text!r} is no address that a node can reach: give the host that nodes use.")
        return Server(str(address), int(port))
    if not HOST.fullmatch(host) or host.rpartition(".")[2].isdigit():
        raise UserError(f"--server {text!r}: {host!r} is no name of a host: give one such as fl.example.org.")
    return Server(host, int(port))


def _address(text: str):
    try:
        return ip_address(text)
    except ValueError:
        return None
