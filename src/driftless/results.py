"""Run folders read back into plain values, and what is derived from their raw metrics.

A folder is a run (`run.toml`, `metrics.jsonl`, at its end `clients.json`) or holds runs (`seed-0/`, `seed-1/`, ...).
`metrics.jsonl` keeps raw values only; best, last, means and costs are derived here and nowhere else.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from driftless.errors import UserError

SEED_KEYS = frozenset({"seed", "seeds", "out", "name"})  # two runs that differ in nothing else are one row
DEPTH = 3  # how far below a named folder runs are looked for


class Spread(NamedTuple):
    """Mean and sample standard deviation over `seeds` runs; `sd` is 0 for one."""

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
    """Mean and sample standard deviation of what was measured; None if nothing was.

    >>> spread([1.0, None, 3.0])
    Spread(mean=2.0, sd=1.4142135623730951, seeds=2)
    """
    known = [v for v in values if v is not None]
    if not known:
        return None
    finite = all(map(math.isfinite, known))
    sd = float(np.std(known, ddof=1)) if finite and len(known) > 1 else 0.0
    return Spread(float(np.mean(known)) if finite else math.nan, sd, len(known))


def moving_average(values: np.ndarray, window: int = 5) -> np.ndarray:
    """Uniform moving average without padding: [P] to [max(P - window + 1, 1)]; shorter input is averaged whole.

    >>> moving_average(np.array([1.0, 2.0, 6.0]), window=2).tolist()
    [1.5, 4.0]
    """
    window = max(1, min(window, len(values)))
    return np.convolve(values, np.full(window, 1 / window), mode="valid")


@dataclass(frozen=True)
class Run:
    """One run as it lies in its folder: settings, one dict of raw metrics a round, one dict a client."""

    name: str
    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    clients: list[dict[str, Any]]
    path: Path
    versions: dict[str, Any] = field(default_factory=dict)
    resolved: dict[str, Any] = field(default_factory=dict)

    def series(self, key: str) -> tuple[np.ndarray, np.ndarray]:
        """The rounds in which `key` was measured and its values, two arrays [P]; `bytes` is up + down."""
        pairs = [(row["round"], value) for row in self.metrics if (value := _value(row, key)) is not None]
        rounds, values = zip(*pairs, strict=True) if pairs else ((), ())
        return np.array(rounds, dtype=int), np.array(values, dtype=float)

    def last(self, key: str) -> float | None:
        """The last value measured, NaN included."""
        values = self.series(key)[1]
        return float(values[-1]) if len(values) else None

    def best(self, key: str) -> float | None:
        """The largest value of an accuracy, the smallest of anything else; NaN if nothing finite was measured."""
        values = self.series(key)[1]
        finite = values[np.isfinite(values)]
        pick = np.max if "accuracy" in key else np.min
        return None if not len(values) else float(pick(finite)) if len(finite) else math.nan

    def mean_of_last(self, key: str, k: int = 10) -> float | None:
        """The mean of the last k values measured."""
        values = self.series(key)[1][-k:]
        return float(values.mean()) if len(values) else None

    def median(self, key: str) -> float | None:
        """The median over all rounds."""
        values = self.series(key)[1]
        return float(np.median(values)) if len(values) else None

    def smoothed(self, key: str, window: int = 5, last: int = 50) -> float | None:
        """FedInit's figure: the largest of the last 50 values of the moving average (FedInit, section 5.1)."""
        values = self.series(key)[1]
        averages = moving_average(values, window)[-last:] if len(values) else values
        finite = averages[np.isfinite(averages)]
        return None if not len(values) else float(finite.max()) if len(finite) else math.nan

    def to_target(self, target: float, key: str = "global_accuracy") -> Cost | None:
        """What was spent until `key` first reached `target`; None if it never did."""
        rounds, values = self.series(key)
        reached = np.flatnonzero(values >= target)
        if not len(reached):
            return None
        end = int(rounds[reached[0]])
        sent = [v for row in self.metrics if row["round"] <= end and (v := _value(row, "bytes")) is not None]
        seconds = [v for row in self.metrics if row["round"] <= end and (v := _value(row, "seconds")) is not None]
        return Cost(end, sent[-1] if sent else None, sum(seconds) if seconds else None)


@dataclass(frozen=True)
class Runs:
    """One row of a table: runs that differ in their seed alone."""

    name: str
    runs: tuple[Run, ...]

    @property
    def config(self) -> dict[str, Any]:
        """The settings that the seeds share."""
        return {key: value for key, value in self.runs[0].config.items() if key not in SEED_KEYS}

    @property
    def seeds(self) -> list[Any]:
        """The seeds, in the order of the runs."""
        return [run.config.get("seed") for run in self.runs]

    def over(self, derive: Callable[[Run], float | None]) -> Spread | None:
        """A derived value over seeds: `row.over(lambda run: run.last("global_accuracy"))`."""
        return spread(derive(run) for run in self.runs)

    def curve(self, key: str, against: str = "round") -> Curve | None:
        """`key` over seeds against rounds or another key, at the rounds that all seeds which measure it share."""
        points = [_points(run, key, against) for run in self.runs]
        points = [p for p in points if p]
        if not points:
            return None
        rounds = sorted(set.intersection(*map(set, points)))
        if not rounds:
            return None
        x, y = np.array([[p[t] for t in rounds] for p in points], dtype=float).transpose(2, 0, 1)
        with np.errstate(invalid="ignore"):  # a run that diverged has infinities: its mean is inf, its band NaN
            sd = y.std(axis=0, ddof=1) if len(points) > 1 else np.zeros(len(rounds))
            return Curve(x.mean(axis=0), y.mean(axis=0), sd)


def read_run(folder: str | Path) -> Run:
    """Read one run folder. UserError if a file is missing or cannot be read."""
    path = Path(folder)
    if not (path / "run.toml").is_file():
        raise UserError(f"{path} has no run.toml: name a folder that `driftless run` wrote.")
    try:
        tables = tomllib.loads((path / "run.toml").read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path / 'run.toml'} is not TOML ({error}): run it again, or name another folder.") from error
    config = _flat(tables.get("config", {}))
    metrics = _read_metrics(path / "metrics.jsonl")
    name = str(config.get("name") or config.get("algorithm") or path.resolve().name)
    clients = _read_clients(path / "clients.json")
    return Run(
        name, config, metrics, clients, path, _flat(tables.get("versions", {})), _flat(tables.get("resolved", {}))
    )


def read_runs(folders: str | Path | Iterable[str | Path]) -> list[Runs]:
    """Read run folders and folders of runs into rows, in order; runs that differ in their seed alone share a row.

    UserError if a folder holds no run that has finished a round.
    """
    folders = [folders] if isinstance(folders, str | Path) else list(folders)
    if not folders:
        raise UserError("No folder was named: name one run folder or several.")
    paths = [Path(folder) for folder in folders]
    found: dict[Path, Run] = {}
    for folder in [path for path in paths if not path.is_file()] or paths:  # `runs/*` also names the reports among them
        for path in _find(folder):
            found.setdefault(path.resolve(), read_run(path))
    rows: dict[tuple[str, int], list[Run]] = {}
    for run in found.values():
        same = json.dumps({k: v for k, v in run.config.items() if k not in SEED_KEYS}, sort_keys=True, default=str)
        repeat = 0  # the same seed again is another row: a repetition is no new seed
        while any(other.config.get("seed") == run.config.get("seed") for other in rows.get((same, repeat), [])):
            repeat += 1
        rows.setdefault((same, repeat), []).append(run)
    groups = [Runs(group[0].name, tuple(group)) for group in rows.values()]
    return [Runs(name, row.runs) for name, row in zip(_labels(groups), groups, strict=True)]


def differing(rows: Iterable[Runs]) -> list[str]:
    """The settings in which rows differ, in the order of the files."""
    configs = [row.config for row in rows]
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if len({repr(config.get(key, ...)) for config in configs}) > 1]


def _value(row: dict[str, Any], key: str) -> float | None:
    if key in ("bytes", "numbers"):
        ways = [v for way in ("up", "down") if (v := _value(row, f"{key}_{way}")) is not None]
        return sum(ways) if ways else None
    value: Any = row
    for part in key.split("/", 1):  # "consensus/conv1": one layer of a nested metric
        value = value.get(part) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _points(run: Run, key: str, against: str) -> dict[int, tuple[float, float]]:
    pairs = ((row["round"], _value(row, against), _value(row, key)) for row in run.metrics)
    return {t: (x, y) for t, x, y in pairs if x is not None and y is not None}


def _find(folder: Path, depth: int = DEPTH) -> list[Path]:
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder: name a run folder, or a folder that holds seed-0/, seed-1/, ...")
    if (folder / "metrics.jsonl").is_file():
        return [folder]
    paths = _walk(folder, depth)
    if not paths and not (folder / "run.toml").is_file():
        raise UserError(f"{folder} holds no run that has finished a round: name a folder that `driftless run` wrote.")
    return paths or [folder]  # a run that did not get far is refused by name where it is read


def _walk(folder: Path, depth: int) -> list[Path]:
    started = folder / "metrics.jsonl"
    if started.is_file() and (folder / "run.toml").is_file():
        return [folder] if started.stat().st_size else []
    below = [p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")] if depth else []
    return [run for child in sorted(below, key=_order) for run in _walk(child, depth - 1)]


def _order(path: Path) -> tuple[str, int]:  # seed-2 before seed-10
    stem = path.name.rstrip("0123456789")
    return stem, int(path.name[len(stem) :] or 0)


def _read_metrics(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    rounds: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            rounds[int(row["round"])] = row  # after a resume the later line counts
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                break  # a line that a crash cut off
            raise UserError(f"{path}, line {number}, is not a round's metrics: mend or delete that line.") from error
    if not rounds:
        raise UserError(f"{path.parent} has no finished round in metrics.jsonl: wait for one, or name another folder.")
    return [rounds[t] for t in sorted(rounds)]


def _read_clients(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    try:
        clients = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not JSON: delete it, the report works without it.") from error
    if not isinstance(clients, list) or not all(isinstance(client, dict) for client in clients):
        raise UserError(f"{path} is not a list of clients: delete it, the report works without it.")
    return clients


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _labels(rows: list[Runs]) -> list[str]:
    """Names that tell rows apart: the algorithm, then the settings in which its namesakes differ, then the folder."""
    labels = []
    for row in rows:
        namesakes = [other for other in rows if other.name == row.name]
        differ = [key for key in differing(namesakes) if key != "algorithm" and key in row.config]
        labels.append(", ".join([row.name, *(f"{key} {row.config[key]}" for key in differ[:3])]))
    same = [labels.count(label) > 1 for label in labels]
    return [f"{label} ({row.runs[0].path})" if s else label for label, s, row in zip(labels, same, rows, strict=True)]
