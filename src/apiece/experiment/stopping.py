"""When a run ends before its last round, and which of its models was the best: `early_stopping` and `keep_best`.

Both read the rounds so far from the run's own records, which a resumed run reads back from metrics.jsonl; so a run that
was killed decides as one that was not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import safetensors.torch

from apiece.config.assemble import Experiment
from apiece.errors import UserError, nearest
from apiece.experiment import folders
from apiece.experiment.folders import BEST
from apiece.experiment.result import Info, Round, measures_of
from apiece.report.metrics import ACCURACY, Measure, by_key, numbers
from apiece.storage.checkpoint_files import head, metadata
from apiece.system import files

STOP = "stop"


class Seen(Protocol):
    """A round as a watcher or `on_round` sees it."""

    @property
    def info(self) -> Info: ...

    @property
    def history(self) -> Sequence[Info]: ...

    @property
    def since(self) -> int: ...

    @property
    def measures(self) -> tuple[Measure, ...]: ...


@dataclass(frozen=True)
class EarlyStopping:
    """See `early_stopping`."""

    metric: str | None
    patience: int
    min_delta: float = 0.0

    def __call__(self, seen: Seen) -> str | None:
        return STOP if self.due([*seen.history, seen.info], seen.measures, seen.since) else None

    def due(self, records: Sequence[Info], measures: tuple[Measure, ...] = (ACCURACY,), since: int = 0) -> bool:
        """Whether the run ends after these rounds; what came up to round `since` is not waited for again."""
        key, best, waited = named(self.metric, records, measures), None, 0
        higher = higher_is_better(key or "", measures)
        for record in records:
            if key is None or (value := record.get(key)) is None:
                continue
            if best is None or better(higher, value, best, self.min_delta):
                best, waited = value, 0
            elif record["round"] > since:
                waited += 1
        return waited >= self.patience


@dataclass(frozen=True)
class KeepBest:
    """See `keep_best`."""

    metric: str | None = None

    def __call__(self, round: Round) -> None:
        if not isinstance(round, Round):
            raise UserError("keep_best is a watcher, called before a round is saved: give watchers=[keep_best()].")
        if round.folder is None:
            raise UserError(f"keep_best writes {BEST} into the run's folder: give out=...")
        key = named(self.metric, [*round.history, round.info], round.measures)
        value = round.info.get(key) if key is not None else None
        if value is None or not math.isfinite(value):
            return
        higher = higher_is_better(str(key), round.measures)
        if all(better(higher, value, earlier[key]) for earlier in round.history if key in earlier):
            about = {"round": str(round.number)}  # one entry: safetensors writes several in any order
            files.atomic_write(round.folder / BEST, safetensors.torch.save(round.model(), about))


def forget_best(folder: Path, rounds: int) -> None:
    """Remove the best model of a run that has so many rounds now, if it is of a later one; a file without its round is
    left alone.
    """
    path = folder / BEST
    try:
        number = int(metadata(head(path))["round"])
    except (OSError, ValueError, KeyError, TypeError):
        return
    if number > rounds:
        files.remove(path)
        folders.note(folder, f"{path} was of round {number}, which the run has no longer, and is removed.")


class Ending(NamedTuple):
    """When this run ends, if not after its last round."""

    rules: list[EarlyStopping]
    keeping: list[KeepBest]  # the watchers that the settings ask for
    round: int  # at which the run was stopped before, and stays so; 0 if it was not
    measures: tuple[Measure, ...]
    since: int  # at which it was stopped, and went on

    @classmethod
    def of(cls, experiment: Experiment, folder: Path | None, watching: Sequence[Any]) -> Ending:
        """What the settings say, what the folder notes, and which of the functions that watch are rules."""
        config, measures = experiment.config, measures_of(experiment.federated.setup.task)
        patience = config.early_stopping
        own = [] if patience is None else [early_stopping(config.best_by, patience)]
        noted = folders.noted(folder) if folder is not None else {}
        stopped, since = (
            int(text) if (text := noted.get(name, "")).isdecimal() else 0 for name in ("stopped", "went_on")
        )
        rules = own + [watch for watch in watching if isinstance(watch, EarlyStopping)]
        return cls(rules, [KeepBest(config.best_by)] if config.keep_best else [], stopped, measures, since)

    def due(self, records: Sequence[Info]) -> bool:
        """Whether a rule says that the run has ended after these rounds, of which a kill may have hidden the last."""
        return any(rule.due(records, self.measures, self.since) for rule in self.rules)


def early_stopping(metric: str | None = None, patience: int = 5, min_delta: float = 0.0) -> EarlyStopping:
    """Ends a run once `patience` measurements in a row were not better than the best before by more than `min_delta`:

        federate(..., on_round=early_stopping("global_loss", patience=5))

    It may also be one of `watchers`. `metric` is a number of metrics.jsonl; by default that of the first metric for the
    global model, or for the clients' own if there is none. What is better follows from the metric. If the run is given
    more rounds afterwards, it waits anew.

    >>> from apiece import federate
    >>> stop = early_stopping("global_loss", patience=1, min_delta=10.0)  # no round is better by so much
    >>> len(federate(clients=5, rounds=20, steps=2, on_round=stop).metrics)
    2

    Raises UserError for a patience below 1 or a negative `min_delta`, and, in
    the first round that is measured, for a metric that no round has.
    """
    if patience < 1 or not min_delta >= 0:
        raise UserError(
            f"early_stopping: patience={patience} must be 1 or more, and min_delta={min_delta:g} 0 or more."
        )
    return EarlyStopping(metric, patience, min_delta)


def keep_best(metric: str | None = None) -> KeepBest:
    """Keeps the best model of the rounds so far as best.safetensors in the run's folder:

        federate(..., out="runs/one", watchers=[keep_best()])

    `metric` is as in `early_stopping`; of equal rounds the first counts. The file is replaced as a whole, before the
    round's checkpoint is written, and its metadata name the `round`. Raises UserError for a run without a folder.

    >>> from tempfile import TemporaryDirectory
    >>> from apiece import federate
    >>> with TemporaryDirectory() as folder:
    ...     run = federate(clients=5, rounds=2, steps=5, out=f"{folder}/one", watchers=[keep_best()])
    ...     (run.folder / "best.safetensors").is_file()
    True
    """
    return KeepBest(metric)


def better(higher: bool, value: float, best: float, by: float = 0.0) -> bool:
    """Whether one value is better than another by more than `by`; any number is better than NaN."""
    if math.isnan(best):
        return not math.isnan(value)
    return value > best + by if higher else value < best - by


def higher_is_better(key: str, measures: tuple[Measure, ...] = (ACCURACY,)) -> bool:
    """The direction of a number: of a metric's, as the metric has it; of any other, lower for losses alone."""
    number = by_key(measures).get(key)
    return number.higher if number is not None and number.ranked else "loss" not in key


def named(metric: str | None, records: Sequence[Mapping[str, Any]], measures: tuple[Measure, ...]) -> str | None:
    """The number that is meant: the one named, or the first ranked one of the first round that has any; None before a
    round was measured. Raises UserError if the rounds were measured and none has it.
    """
    ranked = [number.key for number in numbers(measures) if number.ranked]
    first = next((r for r in records if any(key in r for key in ranked)), None)
    if metric is None:
        return None if first is None else next(key for key in ranked if key in first)
    if any(metric in record for record in records):
        return metric
    if first is not None:
        found = {k for record in records for k, v in record.items() if isinstance(v, (int, float))}
        raise UserError(f"no round has a number {metric!r}; {nearest(metric, found)}")
    return None
