"""How much a client does in a round, and which samples it sees: drawn at the edge, from streams named by round and
client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from apiece.algebra.piece import Draw
from apiece.config.settings import Config
from apiece.errors import UserError
from apiece.language.expression import Call, parse
from apiece.randomness import generator


@dataclass(frozen=True)
class Between:
    """A number of local steps drawn anew for every client and round, uniform on low..high (stragglers)."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high:
            raise UserError(f"uniform({self.low},{self.high}) is no range of local steps: give 0 <= low <= high.")


@dataclass(frozen=True)
class Work:
    """Local work of a round: `steps` batches (a number or Between), or `epochs` passes over the client's samples.

    By steps, every batch is full: passes over the shuffled samples, each pass's remainder dropped; a client with fewer
    samples than a batch uses them all. By epochs, the last batch of a pass may be smaller.
    """

    steps: int | Between | None = 50
    epochs: int | None = None
    batch: int = 32

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
        return self.steps or 0

    def smallest(self, samples: int) -> int:
        """How many samples are in the smallest batch of a client with so many."""
        return min(self.batch, samples) if self.epochs is None else samples % self.batch or self.batch

    def batches(self, seed: int, round: int, name: str, samples: int, steps: int) -> Any:
        """Rows of the client's samples for every step: int64 [K, B], or a tuple of K index tensors where sizes
        differ.
        """
        rng = generator(seed, "batches", round, name)
        if self.epochs is not None:
            passes = [rng.permutation(samples) for _ in range(self.epochs)]
            rows = [torch.from_numpy(p[i : i + self.batch]) for p in passes for i in range(0, samples, self.batch)]
            rows = rows[:steps]
            return torch.stack(rows) if len({len(r) for r in rows}) == 1 else tuple(rows)
        size = min(self.batch, samples)
        each = samples // size
        passes = [rng.permutation(samples)[: each * size].reshape(each, size) for _ in range(-(-steps // each))]
        return torch.from_numpy(np.concatenate(passes)[:steps])

    def described(self, seed: int, round: int, name: str, samples: int) -> Tensor:
        """Rows of a batch for the client's descriptor, drawn beside those of its steps: int64 [B]."""
        rng = generator(seed, "described", round, name)
        return torch.from_numpy(rng.permutation(samples)[: self.batch])


def work_of(config: Config) -> Work:
    """The local work that a configuration names."""
    if config.epochs is not None:
        return Work(None, config.epochs, config.batch)
    text = config.steps.strip()
    if text.isdecimal() and int(text):
        return Work(int(text), None, config.batch)
    call, *more = parse(text) if text[:1].isalpha() else (Call("none"),)
    if (
        call.name != "uniform"
        or more
        or len(call.arguments) != 2
        or not all(isinstance(a, int) for a in call.arguments)
    ):
        raise UserError(f"steps={text!r} is no number of local steps: give a whole number, or uniform(10,50).")
    if not call.arguments[1]:
        raise UserError(f"steps={text!r} lets nobody take a step: give a larger number.")
    return Work(Between(*call.arguments), None, config.batch)


def draw(
    requests: tuple[Draw, ...],
    seed: int,
    round: int,
    name: str,
    piece: str,
    steps: int,
    dtype: torch.dtype,
    sample: tuple[int, ...] = (),
    samples: int = 0,
) -> dict[str, Tensor]:
    """What a piece asked to be drawn for one client in one round; draws per step or sample have a leading axis of
    these, draws per run name neither client nor round.
    """
    out, leading = {}, {"round": (), "step": (steps,), "sample": (samples,), "run": ()}
    for request in requests:
        whose = ("run",) if request.each == "run" else (round, name)
        rng = generator(seed, "draws", *whose, piece, request.name)
        asked = request.shape(sample) if callable(request.shape) else request.shape
        shape = (*leading[request.each], *asked)
        values = rng.standard_normal(shape) if request.distribution == "normal" else rng.random(shape)
        out[request.name] = torch.from_numpy(np.asarray(values)).to(dtype)
    return out


def in_order(names: Sequence[str], among: Sequence[int]) -> Sequence[int]:
    """These clients in the order of their names; a range of names that ascend as their numbers do is in order
    already.
    """
    ascending = getattr(names, "ascending", False) and isinstance(among, range)
    return among if ascending else sorted(among, key=names.__getitem__)


def cohort(seed: int, round: int, names: Sequence[str], among: Sequence[int], size: int) -> list[int]:
    """A cohort of fixed size without replacement, from its own stream: every algorithm sees the same ones.

    Drawn in the order of names, so that the order in which clients are listed changes nothing.
    """
    order = in_order(names, among)
    chosen = generator(seed, "cohort", round).choice(len(order), size, replace=False)
    return [order[i] for i in sorted(chosen)]


def bernoulli_cohort(seed: int, round: int, names: Sequence[str], among: Sequence[int], share: float) -> list[int]:
    """Each client takes part with probability `share`; an empty draw is drawn again."""
    order = in_order(names, among)
    rng = generator(seed, "cohort", round)
    while True:
        chosen = np.flatnonzero(rng.random(len(order)) < share).tolist()
        if chosen:
            return [order[i] for i in chosen]


def silent(seed: int, round: int, names: list[str], cohort: list[int], share: float) -> frozenset[int]:
    """Which of the cohort do not answer: each with probability `share`, by name."""
    if not share:
        return frozenset()
    return frozenset(c for c in cohort if generator(seed, "absent", round, names[c]).random() < share)
