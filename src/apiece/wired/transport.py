"""The seam between a server and its clients: a phase of messages goes out as bytes, and bytes come back.

The server knows a client by its number, and nothing of how its message travels. On one machine every client is a
process (`Local`); on several, a node of Flower (`apiece.deploy`). What a client does knows neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from apiece.lifts.lift import Threaded
from apiece.wired.processes import ClientProcesses


class Transport(Protocol):
    """How a phase's messages reach the clients, and their answers the server."""

    def ask(self, clients: Sequence[int], message: Callable[[int], bytes]) -> Iterator[bytes | memoryview | None]:
        """The answers of these clients, in their order, each to the message that `message` makes for its number; None
        for a client that does not answer. A client that is asked again is sent the same message, made anew.
        """
        ...

    def declined(self, client: int, why: str) -> None:
        """Learn why an answer of this client's does not count."""
        ...

    def close(self) -> None:
        """End what the transport has begun; no more messages are sent."""
        ...


class Local:
    """Every client is a process of this machine. `delivered` gives a client's folder, with its data in it."""

    def __init__(self, processes: ClientProcesses, delivered: Callable[[int], Path], workers: int) -> None:
        self.processes, self._delivered = processes, delivered
        self._threads = Threaded(workers)  # each thread waits for one process

    def ask(self, clients: Sequence[int], message: Callable[[int], bytes]) -> Iterator[bytes | None]:
        def one(how: Any, shared: Any, client: int) -> bytes | None:
            made = message(client)
            return self.processes.ask(self._delivered(client), made)

        return self._threads.run(one, None, (lambda c=c: c for c in clients))

    def declined(self, client: int, why: str) -> None:
        """Do nothing: the record of the round counts such clients."""

    def close(self) -> None:
        """End all processes, and the threads that wait for them."""
        self.processes.close()
        self._threads.close()
