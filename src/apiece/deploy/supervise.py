"""Processes that are started again when they end, and that end with us."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

SOON, GRACE = 1.0, 10.0  # seconds: before a process is started again, and between SIGTERM and SIGKILL
OFTEN = 5.0  # seconds before a process that ended early is started again
RARELY, PATIENCE = 15.0, 90.0  # the same, once it has ended early for so many seconds
DEATH = 1  # Linux's prctl: the signal that a process gets when its parent dies


@dataclass
class Kept:
    """A process that is kept running: its command and its log. It ends early if it does within `quick` seconds of its
    start. `explain` makes a sentence of what it wrote before it ended, or nothing.
    """

    name: str
    command: list[str]
    environment: dict[str, str]
    log: Path
    say: Callable[[str], None]
    quick: float = 10.0
    explain: Callable[[str], str] = lambda written: ""
    process: subprocess.Popen | None = None
    begun: float = 0.0
    failing: float = 0.0  # since when it has ended early each time; 0 if the last time it did not
    due: float = 0.0
    written: int = 0  # the length of the log at the start

    def look(self) -> None:
        """Start the process if it is due."""
        now = time.monotonic()
        if self.process is not None and (code := self.process.poll()) is not None:
            self._end_group()
            self.failing = (self.failing or self.begun) if now - self.begun < self.quick else 0.0
            wait = SOON if not self.failing else OFTEN if now - self.failing < PATIENCE else RARELY
            why = self.explain(self._written()) or f"{self.name} ended with {code}; see {self.log}."
            self.say(f"{why} It is started again in {wait:g} seconds.")
            self.process, self.due = None, now + wait
        if self.process is None and now >= self.due:
            self.begun = now
            with open(self.log, "ab") as out:
                self.written = out.tell()
                self.process = subprocess.Popen(
                    self.command,
                    env=self.environment,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    preexec_fn=_with_parent if sys.platform == "linux" else None,
                )

    def _written(self) -> str:
        """What the process has written since it started."""
        with open(self.log, "rb") as log:
            log.seek(self.written)
            return log.read(1 << 20).decode(errors="replace")

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def ask_to_end(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.terminate()

    def end(self, until: float) -> None:
        """Wait until then for the process to end, and then end it and what it has begun."""
        if self.process is not None:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(max(0.1, until - time.monotonic()))
            self._end_group()
            self.process = None

    def _end_group(self) -> None:
        assert self.process is not None
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _with_parent() -> None:
    """End this process when its parent dies, however that dies."""
    ctypes.CDLL(None).prctl(DEATH, signal.SIGKILL)


@contextmanager
def kept(processes: list[Kept]) -> Iterator[None]:
    """Processes that have ended, all, when this context ends; the last is asked first."""
    try:
        yield
    finally:
        until = time.monotonic() + GRACE
        for process in reversed(processes):
            process.ask_to_end()
        for process in reversed(processes):
            process.end(until)
