"""The processes of wired clients: one is started when a message is to be sent, and kept while few are idle."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from threading import Lock

from driftless import spawn
from driftless.wired_client import serve

IDLE = 32  # processes that wait for their client's next message; the one that waits longest is ended first
PRELOAD = ("driftless.wired_client", "driftless.models", "numpy.random", "torch")  # what a new process finds imported


class ClientProcesses:
    """The clients' processes: made when a message is to be sent, ended when too many are idle. Told apart by folder."""

    def __init__(self, text: str, modules: set[str]) -> None:
        self.text, self.closed = text, False
        self._idle: OrderedDict[Path, spawn.Live] = OrderedDict()
        self._lock = Lock()
        self._context = spawn.context([*PRELOAD, *sorted(modules)])

    def ask(self, folder: Path, message: bytes) -> bytes | None:
        """A client's answer. A process that ended is started and sent the message again, once; then there is none."""
        for _ in range(0 if self.closed else 2):
            live = self._take(folder)
            try:
                live.pipe.send_bytes(message)
                answer = live.pipe.recv_bytes()
            except (EOFError, OSError):
                live.end()
                continue
            self._give(folder, live)
            return answer
        return None

    def close(self) -> None:
        """End those that are idle now, and the others once they have answered; no more messages are sent."""
        with self._lock:
            self.closed = True
            while self._idle:
                self._idle.popitem()[1].end()

    def _take(self, folder: Path) -> spawn.Live:
        with self._lock:
            if folder in self._idle:
                return self._idle.pop(folder)
            return spawn.begin(self._context, serve, self.text, str(folder))

    def _give(self, folder: Path, live: spawn.Live) -> None:
        with self._lock:
            self._idle[folder] = live
            while len(self._idle) > (0 if self.closed else IDLE):
                self._idle.popitem(last=False)[1].end()
