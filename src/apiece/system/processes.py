"""Our own processes: they start from a server that has imported torch and never executes the user's script.

A `Pool` is what all users of such processes share: how long to wait for an answer, and that no process remains.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import multiprocessing.util  # before our own atexit: our processes must end before it waits for them
import os
import signal
import socket
import struct
import sys
import time
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from apiece.errors import UserError
from apiece.system import signals

PATIENCE = 300.0  # seconds
T = TypeVar("T")


class Lost(UserError):
    """A process gave no answer."""

    advice = ""


class Ended(Lost):
    """A process ended before it answered."""

    advice = "take fewer --workers or --lift threaded"


class Silent(Lost):
    """A process was silent for longer than the run's patience, and was ended."""

    advice = "take a longer --patience if its work takes so long"


class Live(NamedTuple):
    """A running process, and the pipe to it."""

    process: Any
    pipe: Connection

    def end(self) -> None:
        """Kill the process, and close the pipe."""
        _kill(self.process)
        self.pipe.close()


class Pool:
    """Processes that each run serve(pipe, *arguments). An answer may take `patience` seconds longer than the slowest
    answer so far.
    """

    def __init__(self, preload: Iterable[str], serve: Callable, patience: float = PATIENCE) -> None:
        self.patience, self.closed = patience, False
        self._context, self._serve, self._slowest = context(preload), serve, 0.0
        self._processes, self._lock = set[Any](), Lock()
        weakref.finalize(self, _kill_all, self._processes)
        _pools.add(self)

    def begin(self, *arguments: Any) -> Live:
        """A new process; raises Ended if the pool is closed."""
        live = None if self.closed else begin(self._context, self._serve, *arguments)
        with self._lock:
            if live is not None and not self.closed:
                self._processes.add(live.process)
                return live
        if live is not None:
            live.end()
        raise Ended("is not begun: the run has ended")

    def end(self, live: Live) -> None:
        """End one process."""
        live.end()
        self._processes.discard(live.process)

    @contextmanager
    def speaking(self, live: Live) -> Iterator[None]:
        """In this context a process gets a message and answers it; raises Ended or Silent, and ends the process."""
        most, began = self._slowest + self.patience, time.monotonic()
        try:
            _wait_at_most(live.pipe, most)
            yield
        except BlockingIOError:
            self.end(live)
            raise Silent(f"said nothing for {most:.4g} seconds") from None
        except (EOFError, OSError):
            self.end(live)
            raise Ended("ended before it answered (out of memory?)") from None
        self._slowest = max(self._slowest, time.monotonic() - began)

    def twice(self, who: str, ask: Callable[[], T]) -> T:
        """What `ask` returns. If its process is lost, `ask` is called once more; if the second is lost too, raises its
        error: Ended or Silent.
        """
        try:
            return ask()
        except Lost as lost:
            if self.closed:
                raise
            logging.getLogger(__name__).warning("%s %s: a new one is asked", who, lost)
        try:
            return ask()
        except Lost as lost:
            raise type(lost)(
                f"{who} {lost}, as one before it was lost at the same work: {lost.advice}; a run "
                "with a folder continues with `apiece resume`."
            ) from None

    def pids(self) -> list[int]:
        """The processes that run."""
        return [process.pid for process in self._processes]

    def close(self) -> None:
        """End all processes, also those at work; whoever waits for one gets Ended. No more are started."""
        with self._lock:
            self.closed = True
        _kill_all(self._processes)


_pools = weakref.WeakSet[Pool]()


@atexit.register
def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


def context(preload: Iterable[str]) -> Any:
    """Where processes start: a server that imported these modules, or a new interpreter if there is no server."""
    quick = "forkserver" in multiprocessing.get_all_start_methods()
    made: Any = multiprocessing.get_context("forkserver" if quick else "spawn")
    if quick:
        made.set_forkserver_preload(list(preload))
    return made


def begin(context: Any, serve: Callable, *arguments: Any) -> Live:
    """A process that runs serve(pipe, *arguments), and ends with this one."""
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, *arguments), daemon=True)
    with _starting, _without_script(), _deaf():
        process.start()
    theirs.close()
    return Live(process, ours)


_starting = Lock()


@contextmanager
def _without_script() -> Iterator[None]:
    """Start processes without importing the main script: they need nothing from it, and must not execute it again."""
    script, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


@contextmanager
def _deaf() -> Iterator[None]:
    """What starts in this context ignores the signals that end a run, which often reach all its processes: the run ends
    its own processes.
    """
    resource_tracker.ensure_running()  # starting it later would unblock the signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals.ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait_at_most(pipe: Connection, seconds: float) -> None:
    """From now on a read or write that moves no byte for `seconds` raises BlockingIOError."""
    limit = struct.pack("ll", *divmod(max(1, round(seconds * 1e6)), 1_000_000))
    with socket.socket(fileno=os.dup(pipe.fileno())) as end:
        for direction in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            end.setsockopt(socket.SOL_SOCKET, direction, limit)


def _kill_all(processes: set[Any]) -> None:
    for process in list(processes):
        process.kill()
    while processes:
        _kill(processes.pop())


def _kill(process: Any) -> None:
    process.kill()
    process.join(1.0)  # whoever reports its end may itself hang
