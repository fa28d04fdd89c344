"""The two tiers: `make test` runs what is fast, `make check` runs the tests that bear `slow` as well.

A fast test takes at most `MOST` seconds, of the processor as well as by the clock. Other programs stretch the clock
alone, and a process that an earlier test began and this one's turn saw end adds to the processor's seconds alone. On a
slower machine it may take as much longer as `sample` does there. A test that waits, for a process or a signal, may take
ten times as long by the clock. What Python's collector takes is not the test's: it clears at once what hundreds of
tests before this one left behind, which takes seconds.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Container, Iterable
from typing import Any, NamedTuple

import pytest
import torch

MOST, WAITS = 3.0, 10.0
SAMPLE = 0.017  # seconds that `sample` takes where the tests were divided


class Collections:
    """Seconds that Python's collector took in this process so far."""

    def __init__(self) -> None:
        self.seconds = self._began = 0.0
        gc.callbacks.append(self._tell)

    def _tell(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self.seconds += time.perf_counter() - self._began


COLLECTIONS = Collections()


class Moment(NamedTuple):
    """Seconds so far, without the collector's."""

    processor: float
    clock: float

    @classmethod
    def now(cls) -> Moment:
        """Of this process and its ended children."""
        return cls(sum(os.times()[:4]) - COLLECTIONS.seconds, time.perf_counter() - COLLECTIONS.seconds)


def sample() -> float:
    """Seconds of the processor for a fixed computation."""
    began, w = time.process_time(), torch.zeros(200)
    for _ in range(2000):
        w = torch.tanh(w.outer(w).sum(0) + w)
    return time.process_time() - began


def slowness() -> float:
    """How many times as long as there a computation takes here and now, at least 1."""
    return max(1.0, min(sample() for _ in range(3)) / SAMPLE)


def refuse_slow(began: Moment) -> None:
    """Fail a test that began then, where it took longer than a fast one may."""
    ended = Moment.now()
    clock = ended.clock - began.clock
    taken = max(min(ended.processor - began.processor, clock), clock / WAITS)
    if taken > MOST and taken > MOST * slowness():
        pytest.fail(f"it took {taken:.1f} seconds, and a fast test {MOST:g}: mark it `slow`, or make it faster")


def but(fast: Container[Any], cases: Iterable[Any]) -> list[Any]:
    """The cases for `parametrize`, all of them slow but these."""
    slow = lambda case: pytest.param(*(case if isinstance(case, tuple) else [case]), marks=pytest.mark.slow)
    return [case if case in fast else slow(case) for case in cases]
