"""The trials of a search: what was tried and found (trials.jsonl), which values come next, which trials go on."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from apiece.errors import UserError, with_extra
from apiece.reproduce.ledger import lines_of
from apiece.search.ranges import Choice, Range, Value

NAME = "trials.jsonl"


class Tried(NamedTuple):
    """A trial at a rung: the metric of each seed there, or why the trial failed."""

    algorithm: str
    trial: int
    rung: float
    values: dict[str, Value]
    found: list[float]
    rounds: list[int]
    bytes: list[int]
    failed: str = ""

    @property
    def mean(self) -> float:
        return sum(self.found) / len(self.found) if self.found and not self.failed else math.nan


def read(path: Path) -> list[Tried]:
    """All trials so far, in order, without a last line that a crash cut off."""
    return lines_of(path, lambda given: Tried(**given), "trial")


def suggested(
    ranges: Mapping[str, Range | Choice], before: Sequence[Tried], number: int, seed: int, higher: bool
) -> dict[str, Value]:
    """The values of a trial, from the trials before it at the first rung: a function of these, of the number and of the
    seed alone, so that a search that was killed goes on as if it had not been.
    """
    optuna = package()
    sampler = optuna.samplers.TPESampler(seed=zlib.crc32(f"{seed} {number}".encode()))
    study = optuna.create_study(direction="maximize" if higher else "minimize", sampler=sampler)
    spaces = distributions(ranges)
    means = [one.mean for one in before if math.isfinite(one.mean)]
    worst = (min if higher else max)(means, default=None)
    for one in before:
        value = one.mean if math.isfinite(one.mean) else worst  # a trial that failed is as bad as the worst
        if value is not None:
            params = {name: one.values[name] for name in ranges}
            study.add_trial(optuna.create_trial(params=params, value=value, distributions=spaces))
    return study.ask(spaces).params


def distributions(ranges: Mapping[str, Range | Choice]) -> dict[str, Any]:
    """The ranges as optuna has them."""
    of = package().distributions

    def made(one: Range | Choice) -> Any:
        if isinstance(one, Choice):
            return of.CategoricalDistribution(one.values)
        kind = of.IntDistribution if one.whole else of.FloatDistribution
        return kind(one.low, one.high, log=one.log)

    return {name: made(one) for name, one in ranges.items()}


def package() -> Any:
    """Optuna, which is silent; UserError if it is missing."""
    try:
        import optuna
    except ImportError:
        raise UserError(f"apiece tune needs optuna: {with_extra('tune')}.") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def best(tried: Sequence[Tried], count: int, higher: bool) -> list[Tried]:
    """The best so many of some trials, best first; of equal ones the earlier. Failed ones never are among them."""
    known = [one for one in tried if math.isfinite(one.mean)]
    return sorted(known, key=lambda one: (-one.mean if higher else one.mean, one.trial))[:count]
