"""The network between ranks: the interface through which they connect, and how soon a lost machine is noticed.

By default gloo uses the address of this machine's own name, which is often its loopback, and it waits for a lost
machine as long as for a busy one.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torch.distributed.distributed_c10d import Store

try:
    import fcntl
except ImportError:  # Windows has none
    fcntl = None

MISSED = 60  # seconds without a sign of life after which a machine counts as lost
ADDRESS_OF = 0x8915  # SIOCGIFADDR of Linux: the IPv4 address of an interface


def name_interface(store: Store, rank: int, world: int) -> None:
    """Tell gloo through which interface other machines reach this one, unless GLOO_SOCKET_IFNAME does.

    It is the interface towards the first rank. If that is a loopback, this is the first rank's machine: the other ranks
    have reached it, and tell it the address that they used.
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
    """This machine's address on the way to a host, and the host's address; loopbacks if there is no IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, port))  # sends nothing
            return probe.getsockname()[0], probe.getpeername()[0]
        except OSError:
            return "127.0.0.1", "127.0.0.1"


def _loops(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _address(interface: str) -> str | None:
    if fcntl is None:
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            found = fcntl.ioctl(probe, ADDRESS_OF, struct.pack("256s", interface.encode()))
        except OSError:  # this interface has no address
            return None
    return socket.inet_ntoa(found[20:24])


@contextmanager
def watched() -> Iterator[None]:
    """The system probes the connections that are made in this context, and ends those whose other machine is gone."""
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
    """This process's sockets: their numbers, which are reused, with the system's names, which are not."""
    files = Path("/proc/self/fd")
    found = set()
    for file in files.iterdir() if files.is_dir() else ():  # only Linux lists them there
        with suppress(OSError):  # the list's own entry is closed by now
            if (name := os.readlink(file)).startswith("socket:"):
                found.add((int(file.name), name))
    return found
