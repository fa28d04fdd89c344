"""How a cell is run, and what is read off its run: the `work` of most cards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from apiece.config.tables import from_table
from apiece.experiment.identity import NOT_IDENTITY
from apiece.report.records import Run

Reading = Callable[[Run], Any]


def run_folder(above: Path, settings: Mapping[str, Any]) -> Path:
    """The folder inside `above` of the run that has these settings, with their seed. It is named by the algorithm and a
    digest of all settings that may change a result.
    """
    named = {key: value for key, value in settings.items() if key not in {"seed", "device", *NOT_IDENTITY}}
    made = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:8]
    name = quote(str(settings.get("algorithm", "run")), safe="()[]+=, ")
    return above / f"{name}-{made}" / f"seed-{settings['seed']}"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a run that may not have begun, by a lock beside its folder; raises Busy if another process holds it."""
    from apiece.experiment.folders import alone

    folder.parent.mkdir(parents=True, exist_ok=True)
    with alone(folder.parent, f"{folder.name}.lock"):
        yield


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Hold the folder of lines and pages while they are written; waits for another process that does the same."""
    from apiece.experiment.folders import alone

    with alone(out, wait=300):
        yield


def runs(**readings: Reading) -> Callable[[Mapping[str, Any], Path], dict[str, Any]]:
    """A cell is a run of `apiece run`; `readings` say by name what is read off it. A stopped run is continued."""

    def work(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        from apiece.experiment.launch import ensure
        from apiece.report.results import read_run

        ensure(from_table(dict(settings), str(folder)), folder)
        run = read_run(folder)
        return {name: value for name, read in readings.items() if (value := read(run)) is not None}

    return work


def federated(settings: Mapping[str, Any], folder: Path, **objects: Any) -> Run:
    """The run of settings that a program gives, as `algorithm` and `watchers` may be; one that was stopped goes on."""
    from apiece.experiment.folders import ended
    from apiece.experiment.launch import federate
    from apiece.report.results import read_run

    if not (ended(folder) and (folder / "report.html").is_file()):  # a page alone may be of an unfinished run
        federate(**settings, **objects, out=str(folder), resume=True)
    return read_run(folder)


def last(key: str) -> Reading:
    """The last value of a number of metrics.jsonl."""
    return lambda run: run.last(key)


def best(key: str) -> Reading:
    """The best value over the rounds, which looks at the test set."""
    return lambda run: run.best(key)


def smoothed(key: str, window: int = 5) -> Reading:
    """The best of the last fifty values of the moving average (FedInit, section 5.1)."""
    return lambda run: run.smoothed(key, window)


def curve(key: str) -> Reading:
    """[[round, ...], [value, ...]] of a number; None if it was not measured."""

    def read(run: Run) -> list[list[float]] | None:
        rounds, values = run.series(key)
        return [rounds.tolist(), values.tolist()] if len(rounds) else None

    return read


def total(*keys: str) -> Reading:
    """The sum of the last values of numbers that count: bytes, numbers sent."""
    return lambda run: sum(run.last(key) or 0.0 for key in keys)


def sizes_of_layers(run: Run) -> dict[str, int]:
    """How many parameters each layer of the run's model has."""
    from apiece.config.assemble import assemble

    setup = assemble(from_table(run.config, str(run.path))).federated.setup
    sizes = setup.layer_index.bincount().tolist()
    return dict(zip(setup.task.space.layers, sizes, strict=True))
