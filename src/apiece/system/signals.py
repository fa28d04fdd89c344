"""The signals that end a process, for the command line alone: Ctrl-C, and those of queues, containers and terminals.

Each signal raises `Interrupted` in the main thread, so that everything open is closed. Threads, a long operation or
hanging processes may prevent that: `GRACE` seconds after the signal the process ends in any case. A run that ends at
any moment can be resumed from its last checkpoint.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from types import FrameType
from typing import Any, NoReturn

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
ENDING = tuple(getattr(signal, name) for name in NAMES if hasattr(signal, name))
GRACE, LEAVING = 3.5, 0.5  # seconds: to close what is open; for the exit handlers


class Interrupted(KeyboardInterrupt):
    """One of these signals has arrived."""

    def __init__(self, number: int):
        super().__init__()
        self.number = number


_came: list[int] = []


@contextmanager
def heeded() -> Iterator[None]:
    """In this context these signals end the process with their code, except those that it ignores (`nohup`).

    Windows has no such signals: there Ctrl-C interrupts the main thread, as in any program.
    """
    if os.name == "nt":
        yield
        return
    heard, told = os.pipe()
    os.set_blocking(told, False)
    mine = [number for number in ENDING if signal.getsignal(number) != signal.SIG_IGN]
    for number in mine:
        signal.signal(number, _interrupt)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)  # written at once, whatever the main thread does
    Thread(target=_end_in_time, args=(heard,), daemon=True).start()
    try:
        yield
    finally:
        if _came:
            leave(128 + _came[0])
        for number in mine:
            signal.signal(number, signal.SIG_DFL)


def ignore() -> None:
    """From now on these signals do nothing here: the process is ending, or another process ends it."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def leave(code: int) -> NoReturn:
    """End the process with its exit handlers, but without waiting for busy threads."""
    Thread(target=lambda: (time.sleep(LEAVING), os._exit(code)), daemon=True).start()
    for child in multiprocessing.active_children():
        child.kill()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    _keep_operators()
    atexit._run_exitfuncs()
    os._exit(code)


def _keep_operators() -> None:
    """At exit torch takes its operators away, and a thread that is computing with them would end the process."""
    finalize: Any = weakref.finalize
    for finalizer in list(finalize._registry):
        if (alive := finalizer.peek()) and str(getattr(alive[1], "__module__", "")).startswith("torch."):
            finalizer.atexit = False


def _interrupt(number: int, frame: FrameType | None) -> None:
    ignore()
    _came.append(number)
    raise Interrupted(number)


def _end_in_time(heard: int) -> None:
    while (number := os.read(heard, 1)[0]) not in ENDING:
        pass
    time.sleep(GRACE)
    leave(128 + number)
