"""Runs as values: raw metrics, and everything derived from them.

Best, last, means over seeds, smoothing and costs to a target are computed only here; results.py reads the folders.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from apiece.report.metrics import ACCURACY, BY_KEY, Measure, by_key

PERSONAL = re.compile(r"Period\(which=(?:(?!Period\().)*?, every=inf\b", re.DOTALL)  # in an algorithm of a run.toml
SEED_KEYS = frozenset({"seed", "seeds", "out", "name"})  # runs that differ only in these share a row


class Spread(NamedTuple):
    """Mean and sample standard deviation over `seeds` runs; `sd` is 0 for one run."""

    mean: float
    sd: float
    seeds: int


class Cost(NamedTuple):
    """What was spent until a target was reached: rounds, bytes both ways, seconds of training (None: not measured)."""

    rounds: int
    bytes: float | None
    seconds: float | None


class Curve(NamedTuple):
    """Mean and standard deviation over seeds at each x. Shapes [P]."""

    x: np.ndarray
    mean: np.ndarray
    sd: np.ndarray


def spread(values: Iterable[float | None]) -> Spread | None:
    """Mean and sample standard deviation of the measured values; None if there are none.

    >>> spread([1.0, None, 3.0])
    Spread(mean=2.0, sd=1.4142135623730951, seeds=2)
    """
    known = [v for v in values if v is not None]
    if not known:
        return None
    finite = all(map(math.isfinite, known))
    unequal = finite and max(known) - min(known) > 1e-12 * abs(max(known))  # by more than sums of equal values may be
    sd = float(np.std(known, ddof=1)) if unequal else 0.0
    return Spread(float(np.mean(known)) if finite else math.nan, sd, len(known))


LEVEL = 0.05  # the p-value below which one mean is taken to lie below another


def below(one: Spread, top: Spread) -> bool:
    """Whether a mean lies below a larger one by more than their spread over seeds explains.

    By Welch's t-test, one-sided, at LEVEL. One seed has no spread. Of two such means every smaller one counts as lower,
    and one beside a mean of several seeds cannot be told from it.

    >>> below(Spread(0.6736, 0.1159, 3), Spread(0.6778, 0.1021, 3)), below(Spread(0.8, 0.01, 3), Spread(0.9, 0.01, 3))
    (False, True)
    >>> below(Spread(0.8, 0.0, 1), Spread(0.9, 0.0, 1)), below(Spread(0.8, 0.01, 3), Spread(0.9, 0.0, 1))
    (True, False)
    """
    errors = [spread.sd**2 / spread.seeds for spread in (one, top)]
    if min(one.seeds, top.seeds) < 2 <= max(one.seeds, top.seeds):
        return False
    if one.seeds < 2 or not sum(errors):
        return one.mean < top.mean
    from scipy.special import stdtr

    freedom = sum(errors) ** 2 / sum(e**2 / (s.seeds - 1) for e, s in zip(errors, (one, top), strict=True))
    return bool(stdtr(freedom, (one.mean - top.mean) / math.sqrt(sum(errors))) < LEVEL)


def best(values: Sequence[Spread | None], higher: bool = True) -> frozenset[int]:
    """Which values do not lie below the largest; empty if all are equal, or if there is only one. Where a lower value
    is better (`higher` is false), those that do not lie above the smallest.
    """
    known = {place: value for place, value in enumerate(values) if value is not None and math.isfinite(value.mean)}
    if not higher:
        known = {place: value._replace(mean=-value.mean) for place, value in known.items()}
    if len({value.mean for value in known.values()}) < 2:
        return frozenset()
    top = max(known.values(), key=lambda value: value.mean)
    return frozenset(place for place, value in known.items() if not below(value, top))


def compared(rows: Sequence[Runs], values: Sequence[Spread | None], of_server: bool) -> list[Spread | None]:
    """The values among which the best is sought, None for others: those of pooled data, with which all are compared,
    and if they are measured of the server's model, those of a model that no server has.
    """
    outside = [row.alone or (of_server and row.virtual) for row in rows]
    return [None if out else value for out, value in zip(outside, values, strict=True)]


def moving_average(values: np.ndarray, window: int = 5) -> np.ndarray:
    """Uniform moving average without padding: [P] to [max(P - window + 1, 1)]; shorter input is averaged whole.

    >>> moving_average(np.array([1.0, 2.0, 6.0]), window=2).tolist()
    [1.5, 4.0]
    """
    window = max(1, min(window, len(values)))
    return np.convolve(values, np.full(window, 1 / window), mode="valid")


@dataclass(frozen=True)
class Run:
    """One run as its folder has it: settings, one dict of raw metrics per round, one dict per client."""

    name: str
    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    clients: list[dict[str, Any]]
    path: Path
    versions: dict[str, Any] = field(default_factory=dict)
    resolved: dict[str, Any] = field(default_factory=dict)
    lost: str = ""  # the rounds that were done but are missing in its log
    measures: tuple[Measure, ...] = (ACCURACY,)  # its metrics, the first of which is shown first

    @property
    def first(self) -> str:
        """The key of the global value of its first metric."""
        return f"global_{self.measures[0].name}"

    @property
    def label(self) -> str:
        """What tells it from the other runs of its row: its seed, or the name of its folder."""
        return f"seed {self.config['seed']}" if "seed" in self.config else self.path.name

    def higher(self, key: str) -> bool:
        """Whether a higher value of this number is better: no, for numbers that are no metric's, as losses."""
        number = by_key(self.measures).get(key)
        return number is not None and number.ranked and number.higher

    def series(self, key: str) -> tuple[np.ndarray, np.ndarray]:
        """The rounds in which `key` was measured, and its values: two arrays [P]; `bytes` is up + down."""
        pairs = [(row["round"], value) for row in self.metrics if (value := _value(row, key)) is not None]
        rounds, values = zip(*pairs, strict=True) if pairs else ((), ())
        return np.array(rounds, dtype=int), np.array(values, dtype=float)

    def last(self, key: str) -> float | None:
        """The last value measured, NaN included."""
        values = self.series(key)[1]
        return float(values[-1]) if len(values) else None

    def best(self, key: str) -> float | None:
        """The largest value of a metric of which higher values are better, the smallest of any other number; NaN if no
        value is finite.
        """
        return self._best_of(key, self.series(key)[1])

    def mean_of_last(self, key: str, k: int = 10) -> float | None:
        """The mean of the last k values measured."""
        values = self.series(key)[1][-k:]
        return float(values.mean()) if len(values) else None

    def median(self, key: str) -> float | None:
        """The median over all rounds."""
        values = self.series(key)[1]
        return float(np.median(values)) if len(values) else None

    def smoothed(self, key: str, window: int = 5, last: int = 50) -> float | None:
        """FedInit's figure: the best of the last 50 values of the moving average (FedInit, section 5.1)."""
        values = self.series(key)[1]
        return self._best_of(key, moving_average(values, window)[-last:]) if len(values) else None

    def _best_of(self, key: str, values: np.ndarray) -> float | None:
        finite = values[np.isfinite(values)]
        pick = np.max if self.higher(key) else np.min
        return None if not len(values) else float(pick(finite)) if len(finite) else math.nan

    def to_target(self, target: float, key: str = "") -> Cost | None:
        """What was spent until `key` first reached `target`, by default the first metric; None if it never did."""
        rounds, values = self.series(key := key or self.first)
        reached = np.flatnonzero(values >= target if self.higher(key) else values <= target)
        if not len(reached):
            return None
        end = int(rounds[reached[0]])
        sent = [v for row in self.metrics if row["round"] <= end and (v := _value(row, "bytes")) is not None]
        seconds = [v for row in self.metrics if row["round"] <= end and (v := _value(row, "seconds")) is not None]
        return Cost(end, sent[-1] if sent else None, sum(seconds) if seconds else None)


@dataclass(frozen=True)
class Runs:
    """One row of a table: runs that differ only in their seed."""

    name: str
    runs: tuple[Run, ...]

    @property
    def config(self) -> dict[str, Any]:
        """The settings that the seeds share."""
        return {key: value for key, value in self.runs[0].config.items() if key not in SEED_KEYS}

    @property
    def alone(self) -> bool:
        """Whether all data are in one place: nothing drifts apart there, and what a run logs of it is rounding."""
        return self.config.get("algorithm") == "centralized"

    @property
    def virtual(self) -> bool:
        """Whether no server has its global model: some parameters or buffers stay with the clients, and are averaged
        only to be measured.
        """
        run = self.runs[0]
        own_buffers = run.config.get("buffers") == "local" and bool(run.resolved.get("buffers"))
        return own_buffers or PERSONAL.search(str(run.resolved.get("algorithm", ""))) is not None

    @property
    def seeds(self) -> list[Any]:
        """The seeds, in the order of the runs."""
        return [run.config.get("seed") for run in self.runs]

    def over(self, derive: Callable[[Run], float | None]) -> Spread | None:
        """A derived value over seeds: `row.over(lambda run: run.last("global_accuracy"))`."""
        return spread(derive(run) for run in self.runs)

    def curve(self, key: str, against: str = "round") -> Curve | None:
        """`key` over seeds against rounds or another key, at the rounds that all seeds with that metric share."""
        points = [_points(run, key, against) for run in self.runs]
        points = [p for p in points if p]
        if not points:
            return None
        rounds = sorted(set.intersection(*map(set, points)))
        if not rounds:
            return None
        x, y = np.array([[p[t] for t in rounds] for p in points], dtype=float).transpose(2, 0, 1)
        with np.errstate(invalid="ignore"):  # the infinities of a diverged run give the mean inf and the band NaN
            sd = y.std(axis=0, ddof=1) if len(points) > 1 else np.zeros(len(rounds))
            return Curve(x.mean(axis=0), y.mean(axis=0), sd)


def measured(rows: Iterable[Runs]) -> tuple[Measure, ...]:
    """The metrics of all runs, each name once."""
    found: dict[str, Measure] = {}
    for row in rows:
        for run in row.runs:
            for measure in run.measures:
                found.setdefault(measure.name, measure)
    return tuple(found.values()) or (ACCURACY,)


def _value(row: dict[str, Any], key: str) -> float | None:
    if parts := BY_KEY[key].sum_of if key in BY_KEY else ():
        found = [v for part in parts if (v := _value(row, part)) is not None]
        return sum(found) if found else None
    value: Any = row
    for part in key.split("/", 1):  # "consensus/conv1": one layer of a nested metric
        value = value.get(part) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _points(run: Run, key: str, against: str) -> dict[int, tuple[float, float]]:
    pairs = ((row["round"], _value(row, against), _value(row, key)) for row in run.metrics)
    return {t: (x, y) for t, x, y in pairs if x is not None and y is not None}
