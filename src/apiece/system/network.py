"""The network between ranks: by which interface they meet, and how soon a machine that has gone is missed.

Left to itself gloo meets at the address of this machine's own name, which is often its loopback, and waits for a
machine that has gone as long as for one that is at work.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torch.distributed.distributed_c10d import Store

MISSED = 60  # seconds after which a machine without a sign of life has gone
ADDRESS_OF = 0x8915  # SIOCGIFADDR of Linux: the IPv4 address of an interface


def name_interface(store: Store, rank: int, world: int) -> None:
    """Tell gloo the interface by which other machines reach this one, unless GLOO_SOCKET_IFNAME does.

    It is the one towards the first rank. Where that is a loopback, this is the first rank's machine: the others have
    reached it, and say at which address.
    """
    here, first = _way(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    store.set(f"way-{rank}", f"{here} {first}")
    ways = [store.get(f"way-{other}").decode().split() for other in range(world)]
    reached = [first for here, first in ways if not _loops(here)]
    address = reached[0] if reached and _loops(here) else here
    for _, name in [] if _loops(address) else socket.if_nameindex():
        if _address(name) == address:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def _way(host: str, port: int) -> tuple[str, str]:
    """This machine's address on the way there, and the address there; loopbacks where there is none of IPv4."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, port))  # sends nothing
            return probe.getsockname()[0], probe.getpeername()[0]
        except OSError:
            return "127.0.0.1", "127.0.0.1"


def _loops(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _address(interface: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            found = fcntl.ioctl(probe, ADDRESS_OF, struct.pack("256s", interface.encode()))
        except OSError:  # it has none
            return None
    return socket.inet_ntoa(found[20:24])


@contextmanager
def watched() -> Iterator[None]:
    """Of the connections that are made in here the system asks whether the other machine is there, and ends them
    where it is not.
    """
    before = _sockets()
    yield
    for number, _ in _sockets() - before:
        with socket.socket(fileno=os.dup(number)) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, MISSED // 2)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, MISSED // 6)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * MISSED)


def _sockets() -> set[tuple[int, str]]:
    """This process's sockets: their numbers, which are used again, with the system's names, which are not."""
    files = Path("/proc/self/fd")
    found = set()
    for file in files.iterdir() if files.is_dir() else ():  # Linux alone lists them there
        with suppress(OSError):  # the list itself, closed by now
            if (name := os.readlink(file)).startswith("socket:"):
                found.add((int(file.name), name))
    return found
