"""The processes of wired clients: one is started when a message is to be sent, and kept while few are idle."""

from __future__ import annotations

import multiprocessing
import sys
import types
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from driftless.wired_client import serve

IDLE = 32  # processes that wait for their client's next message; the one that waits longest is ended first
PRELOAD = ("driftless.wired_client", "driftless.models", "numpy.random", "torch")  # what a new process finds imported


class Live(NamedTuple):
    """A process that runs, and the bytes to and from it."""

    process: Any
    pipe: Connection

    def end(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()


class Processes:
    """The clients' processes: made when a message is to be sent, ended when too many are idle. Told apart by folder."""

    def __init__(self, text: str, modules: set[str]) -> None:
        self.text, self.closed = text, False
        self._idle: OrderedDict[Path, Live] = OrderedDict()
        self._lock = Lock()
        quick = "forkserver" in multiprocessing.get_all_start_methods()
        self._context: Any = multiprocessing.get_context("forkserver" if quick else "spawn")
        if quick:
            self._context.set_forkserver_preload([*PRELOAD, *sorted(modules)])

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

    def _take(self, folder: Path) -> Live:
        with self._lock:
            if folder in self._idle:
                return self._idle.pop(folder)
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=serve, args=(theirs, self.text, str(folder)), daemon=True)
            with _without_script():
                process.start()
            theirs.close()
            return Live(process, ours)

    def _give(self, folder: Path, live: Live) -> None:
        with self._lock:
            self._idle[folder] = live
            while len(self._idle) > (0 if self.closed else IDLE):
                self._idle.popitem(last=False)[1].end()


@contextmanager
def _without_script() -> Iterator[None]:
    """Start a process that does not import the script that runs: it needs nothing of it, and must not run it again."""
    script, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
