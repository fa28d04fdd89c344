"""How much a client does in a round, and which samples it sees: drawn at the edge, from streams named by round and
client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from apiece.algebra.view import Batches
from apiece.errors import UserError, tried
from apiece.randomness import generator
from apiece.system.typed import from_array


@dataclass(frozen=True)
class Between:
    """A number of local steps drawn anew for every client and round, uniform on low..high (stragglers).

    >>> work = Work(Between(1, 5), batch=8)
    >>> [work.count(seed=0, round=0, name=name, samples=100) for name in ("ash", "box", "elm")]
    [2, 2, 5]
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        if not _whole(self.low, least=0) or not _whole(self.high, least=self.low):
            raise UserError(
                f"uniform({self.low},{self.high}) is no range of local steps: give whole numbers, 0 <= low <= high."
            )


@dataclass(frozen=True)
class ByClient:
    """A number of local steps for each client, by a function of its name."""

    given: Callable[[str], int]

    def of(self, name: str) -> int:
        """Those of this client; raises UserError for what is no number of steps."""
        steps = asked("steps", self.given, name)
        if not isinstance(steps, Integral) or steps < 0:
            raise UserError(f"steps gives {steps!r} for client {name!r}: it must give a whole number, 0 or more.")
        return int(steps)


@dataclass(frozen=True)
class StepSizes:
    """A step size for each client, by a function of its name."""

    given: Callable[[str], float]

    def __call__(self, name: str) -> float:
        """That of this client; raises UserError for what is no step size."""
        lr = asked("lr", self.given, name)
        if not isinstance(lr, Real) or not 0 <= float(lr) < inf:
            raise UserError(f"lr gives {lr!r} for client {name!r}: it must give a finite number, 0 or more.")
        return float(lr)


def asked(setting: str, given: Callable[[str], Any], name: str) -> Any:
    """What a program's function gives for a client; raises UserError if the function raises anything."""
    with tried(f"{setting} has no number for client {name!r}"):
        return given(name)


def _whole(given: Any, least: int) -> bool:
    """Whether this is a whole number, and none below `least`."""
    return not isinstance(given, bool) and isinstance(given, Integral) and int(given) >= least


@dataclass(frozen=True)
class Work:
    """Local work of a round: `steps` batches (a number or Between), or `epochs` passes over the client's samples.

    By steps, every batch is full: passes over the shuffled samples, each pass's remainder dropped; a client with fewer
    samples than a batch uses them all. By epochs, the last batch of a pass may be smaller.

    Args:
        steps: a number, or `Between(low, high)`.
        epochs: passes over the client's samples, in place of steps.
        batch: the number of samples of a step.

    >>> Work(steps=Between(10, 50), batch=32).steps
    Between(low=10, high=50)
    """

    steps: int | Between | ByClient | None = 50
    epochs: int | None = None
    batch: int = 32

    def __post_init__(self) -> None:
        drawn = isinstance(self.steps, Between | ByClient) and self.epochs is None
        if not drawn and not _whole(self.steps if self.epochs is None else self.epochs, least=0):
            raise UserError(
                f"steps={self.steps!r} and epochs={self.epochs!r} are no work: give a whole number of one, 0 or more."
            )
        if not _whole(self.batch, least=1):
            raise UserError(f"a batch of {self.batch!r} samples is none: give a whole number, 1 or more.")

    @property
    def equal(self) -> bool:
        """Whether every client that takes a step takes as many."""
        return self.epochs is None and isinstance(self.steps, int)

    def count(self, seed: int, round: int, name: str, samples: int) -> int:
        """The local steps of this client in this round; none without samples."""
        if samples == 0:
            return 0
        if self.epochs is not None:
            return self.epochs * -(-samples // self.batch)
        if isinstance(self.steps, Between):
            return int(generator(seed, "steps", round, name).integers(self.steps.low, self.steps.high + 1))
        return self.steps.of(name) if isinstance(self.steps, ByClient) else self.steps or 0

    def smallest(self, samples: int) -> int:
        """How many samples are in the smallest batch of a client with so many."""
        return min(self.batch, samples) if self.epochs is None else samples % self.batch or self.batch

    def batches(self, seed: int, round: int, name: str, samples: int, steps: int) -> Batches:
        """Rows of the client's samples for every step: int64 [K, B], or a tuple of K index tensors where sizes
        differ.
        """
        rng = generator(seed, "batches", round, name)
        if self.epochs is not None:
            passes = [rng.permutation(samples) for _ in range(self.epochs)]
            rows = [from_array(p[i : i + self.batch]) for p in passes for i in range(0, samples, self.batch)]
            rows = rows[:steps]
            return torch.stack(rows) if len({len(r) for r in rows}) == 1 else tuple(rows)
        size = min(self.batch, samples)
        each = samples // size
        passes = [rng.permutation(samples)[: each * size].reshape(each, size) for _ in range(-(-steps // each))]
        return from_array(np.concatenate(passes)[:steps])

    def described(self, seed: int, round: int, name: str, samples: int) -> Tensor:
        """Rows of a batch for the client's descriptor, drawn beside those of its steps: int64 [B]."""
        rng = generator(seed, "described", round, name)
        return from_array(rng.permutation(samples)[: self.batch])
