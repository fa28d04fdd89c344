"""Processes of our own: begun from a server that has torch imported, and that never ran the user's script.

A `Pool` is what all who speak to such processes share: how long an answer is waited for, and that no process is left.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import multiprocessing.util  # before our own atexit: processes are ended before it waits for them
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
    """A process said nothing for longer than the run has patience, and was ended."""

    advice = "take a longer --patience where its work takes so long"


class Live(NamedTuple):
    """A process that runs, and the bytes to and from it."""

    process: Any
    pipe: Connection

    def end(self) -> None:
        """Kill the process, and close the pipe."""
        _kill(self.process)
        self.pipe.close()


class Pool:
    """Processes that each run serve(pipe, *arguments). An answer is waited for `patience` seconds longer than the
    slowest one so far took.
    """

    def __init__(self, preload: Iterable[str], serve: Callable, patience: float = PATIENCE) -> None:
        self.patience, self.closed = patience, False
        self._context, self._serve, self._slowest = context(preload), serve, 0.0
        self._processes, self._lock = set[Any](), Lock()
        weakref.finalize(self, _kill_all, self._processes)
        _pools.add(self)

    def begin(self, *arguments: Any) -> Live:
        """A new process; raises Ended where the pool is closed."""
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
        """In here a process is sent a message and its answer is received; raises Ended or Silent, and ends it."""
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
        """What `ask` gives; it is asked again where the first process was lost, and raises what happens to the second:
        Ended or Silent.
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
                f"{who} {lost}, as one before it was lost at the same work: {lost.advice}; a run with "
                "a folder goes on with `apiece resume`."
            ) from None

    def pids(self) -> list[int]:
        """The processes that run."""
        return [process.pid for process in self._processes]

    def close(self) -> None:
        """End all processes, those at work too; who waits for one is told that it ended. No more are begun."""
        with self._lock:
            self.closed = True
        _kill_all(self._processes)


_pools = weakref.WeakSet[Pool]()


@atexit.register
def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


def context(preload: Iterable[str]) -> Any:
    """Where processes come from: a server that imported these modules, or a new interpreter where there is none."""
    quick = "forkserver" in multiprocessing.get_all_start_methods()
    made: Any = multiprocessing.get_context("forkserver" if quick else "spawn")
    if quick:
        made.set_forkserver_preload(list(preload))
    return made


def begin(context: Any, serve: Callable, *arguments: Any) -> Live:
    """A process that runs serve(pipe, *arguments) and goes with this one."""
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, *arguments), daemon=True)
    with _starting, _without_script(), _deaf():
        process.start()
    theirs.close()
    return Live(process, ours)


_starting = Lock()


@contextmanager
def _without_script() -> Iterator[None]:
    """Start a process that does not import the script that runs: it needs nothing of it, and must not run it again."""
    script, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


@contextmanager
def _deaf() -> Iterator[None]:
    """What is started in here does not hear the signals that end a run, which often go to all its processes: the run
    ends its own.
    """
    resource_tracker.ensure_running()  # starting it lets the signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals.ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait_at_most(pipe: Connection, seconds: float) -> None:
    """From now on whoever reads or writes so long without a byte gets a BlockingIOError."""
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
    process.join(1.0)  # who tells of its end may itself hang
