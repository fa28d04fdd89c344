"""A thread that makes or reads the data of the next clients while others train."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any

MOST = 16  # clients whose data may wait to be taken


class Ahead:
    """Computes `make(client)`, a pure function, for the clients that are expected, in their order."""

    def __init__(self, make: Callable[[int], Any]):
        self._make, self._lock, self._thread = make, Lock(), ThreadPoolExecutor(1)
        self._made: dict[int, Future] = {}
        self._coming, self._last = deque[int](), list[int]()

    def expect(self, clients: Iterable[int]) -> None:
        """These clients follow those that were expected last; clients that were expected before those are forgotten."""
        clients = list(clients)
        with self._lock:
            wanted = dict.fromkeys([*self._last, *clients])
            self._made = {client: made for client, made in self._made.items() if client in wanted}
            self._coming = deque(client for client in wanted if client not in self._made)
            self._last = clients
            self._go_on()

    def take(self, client: int) -> Any:
        """The data of this client; they are made now if nobody expected it."""
        with self._lock:
            made = self._made.pop(client, None)
            self._go_on()
        return self._make(client) if made is None else made.result()

    def _go_on(self) -> None:
        while self._coming and len(self._made) < MOST:
            client = self._coming.popleft()
            self._made[client] = self._thread.submit(self._make, client)
