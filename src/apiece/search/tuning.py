"""`apiece tune` and `apiece.tune`: which settings are best, measured on samples held out from training.

Each trial has one run folder for each seed, OUT/ALGORITHM/trial-007/seed-0, in which the run goes on from rung to rung.
What a trial found at a rung is a line of trials.jsonl, and is not run again.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from apiece.config.assemble import chosen_algorithm, work_of
from apiece.config.names import SIDES, one, refuse_unknown
from apiece.config.settings import Config, check
from apiece.config.tables import HELD_OUT, from_table, to_table
from apiece.engine.clients import NotFinite
from apiece.errors import UserError, going_on
from apiece.experiment import folders, lifecycle
from apiece.experiment.launch import federate
from apiece.experiment.result import measures_of
from apiece.experiment.tell import remaining
from apiece.language import plugins
from apiece.language.grammar import parse_list
from apiece.report.metrics import Number, named
from apiece.report.results import read_run
from apiece.reproduce.ledger import append
from apiece.search import ranges, trials
from apiece.search.given import assembled, checksums, separated
from apiece.search.page import Tuned
from apiece.search.ranges import Space, Value
from apiece.search.rungs import Budget, Rung, Until
from apiece.search.trials import Tried
from apiece.storage.log import UNREADABLE
from apiece.system.files import atomic_write, make_folder

ABOUT = "tune.json"


class Search(NamedTuple):
    """What is asked: the settings of all runs, and how they are searched."""

    given: dict[str, Any]  # the arguments of `federate`
    config: Config  # those of them that are settings
    spaces: dict[str, Space]  # by algorithm
    seeds: tuple[int, ...]
    metric: str
    number: Number  # of that metric
    checksums: dict[str, str]  # of the data, and of a program's objects
    own: Sequence[str]  # the names of these
    rungs: list[Rung]
    budget: Budget
    out: Path
    over: str
    trials: int
    reduction: int


def tune(
    over: str, *, trials: int = 20, metric: str = "global", algorithms: str = "", reduction: int = 3, budget: str = "",
    seeds: Sequence[int] = (), out: str | Path, **given: Any,
) -> Tuned:  # fmt: skip
    """Search for good settings of `federate(**given)`: see `apiece tune --help`, whose flags have the same names.

    `over`: ranges by name, "lr=loguniform(1e-3, 1), beta=0..0.2". `algorithms`: several with commas between them;
    `algorithm` is one. `given` are the arguments of `federate`, a model and data of your own too. Gives a `Tuned`:
    `best` has the best trial of each algorithm, `settings(algorithm)` the settings to run with. The same call again,
    with the same first weights of a model of your own, continues what was stopped. Raises UserError for what cannot be
    searched.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     found = tune("lr=0.01..0.1", trials=2, clients=4, rounds=1, steps=1, out=f"{folder}/search")
    >>> 0.01 <= found.settings("fedavg")["lr"] <= 0.1
    True
    """
    config, own = separated(given)
    settings = {k: v for k, v in given.items() if k not in ("seed", "seeds")}
    return _tune(settings, config, own, over, trials, metric, algorithms, reduction, budget, tuple(seeds), Path(out))


def tune_config(
    config: Config, over: str, trials: int, metric: str, algorithms: str, reduction: int, budget: str
) -> Tuned:
    """The same for the settings of a command."""
    if config.out is None:
        raise UserError(
            "a search keeps one run folder for each trial and seed: name the folder of them all with --out."
        )
    if metric.startswith("unseen") and not config.unseen:
        raise UserError(f"metric {metric!r} needs clients that never train: give --unseen.")
    settings = {k: v for k, v in to_table(config).items() if k not in ("out", "seed", "seeds")}
    return _tune(settings, config, {}, over, trials, metric, algorithms, reduction, budget, config.seeds,
                 Path(config.out))  # fmt: skip


def _known(metric: str, config: Config, own: Mapping[str, Any]) -> tuple[Number, dict[str, str]]:
    """(the number that is tuned, the checksums of what it is tuned on); UserError if runs have no number so named."""
    experiment = assembled(config, own)
    return named(metric, measures_of(experiment.federated.setup.task)), checksums(own, experiment)


def _tune(
    given: dict[str, Any], config: Config, own: dict[str, Any], over: str, many: int, metric: str, algorithms: str,
    reduction: int, budget: str, seeds: tuple[int, ...], out: Path,
) -> Tuned:  # fmt: skip
    number, known_by = _known(metric, config, own)
    for name, count in (("trials", many), ("reduction", reduction)):
        if count < 1:
            raise UserError(f"{name}={count} must be 1 or more.")
    if config.early_stopping is not None or config.keep_best:
        raise UserError("in a search the rungs say when a run ends: leave early_stopping and keep_best out.")
    if (out / "run.toml").is_file():
        raise UserError(f"{str(out)!r} is the folder of a run: take another --out for the search.")
    trials.package()
    if config.plugin:
        config = replace(config, plugin=plugins.pinned(config.plugin))
        given = given | {"plugin": config.plugin}
    asked, known = ranges.read(over), set[str]()
    names = _names(algorithms or config.algorithm, config)
    configs = {name: from_table(to_table(config) | {"algorithm": name}, "tune") for name in names}
    spaces = {name: ranges.space(own, asked, known) for name, own in configs.items()}
    ranges.refuse_unknown_names(list(configs.values()), asked, known)
    for name, space in spaces.items():
        if not space.ranges:
            raise UserError(f"--over names nothing that {name!r} has: add a setting such as lr, or leave {name} out.")
        for key, of in space.ranges.items():
            if (setting := space.places[key].setting) in own:
                raise UserError(f"--over: {key!r} would replace the program's own {setting}: leave one of them out.")
            for value in of.ends:
                made = from_table(to_table(configs[name]) | space.settings({key: value}), "--over")
                check(made)
                refuse_unknown(made)
                chosen_algorithm(made.algorithm, config.plugin)
                work_of(made)
                for side in SIDES:
                    one(side, getattr(made, side))
    cost = Budget.of(budget, config.rounds)
    held = HELD_OUT | ({"validation": config.validation} if config.validation else {})
    search = Search(given | held, config, spaces, seeds or (config.seed,), metric, number, known_by, list(own),
                    cost.rungs(many, reduction), cost, out, over, many, reduction)  # fmt: skip
    make_folder(out)
    with folders.alone(out), going_on("the same search again continues it"):
        _agreed(search)
        return _run(search)


def _names(text: str, config: Config) -> list[str]:
    """The algorithms of a list, as they are written back."""
    try:
        names = [" + ".join(map(str, terms)) for terms in parse_list(text)]
    except UserError as error:
        raise UserError(f"--algorithms {text!r}: {error}") from None
    for name in names:
        chosen_algorithm(name, config.plugin)
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"--algorithms {text!r} names {twice[0]!r} twice: keep one of them.")
    return names


def _agreed(search: Search) -> None:
    """Note in the folder what is searched; UserError if it holds another search. Further algorithms may join."""
    settings = {k: v for k, v in to_table(search.config).items() if k not in ("out", "algorithm", "workers", "device")}
    about = {"over": search.over, "trials": search.trials, "metric": search.metric, "seeds": list(search.seeds),
             "reduction": search.reduction, "budget": search.budget.told(search.budget.most),
             "settings": settings | search.checksums}  # fmt: skip
    path = search.out / ABOUT
    about = json.loads(json.dumps(about))
    if path.is_file():
        try:
            there = json.loads(path.read_bytes())
            one, two = (x | x["settings"] for x in (there, about))
        except UNREADABLE:
            raise UserError(f"{path} does not say what is searched: put it back, or take another --out.") from None
        differ = [k for k in one | two if k != "settings" and one.get(k) != two.get(k)]
        if differ:
            told = "; ".join(f"{k} is {one.get(k, 'not set')} there and {two.get(k, 'not set')} here" for k in differ)
            raise UserError(f"{str(search.out)!r} holds another search ({told}): take another --out, or remove it.")
        return
    if any(file.name != folders.LOCK for file in search.out.iterdir()):
        raise UserError(f"{str(search.out)!r} exists, and holds no search: take another --out.")
    atomic_write(path, f"{json.dumps(about, indent=1)}\n".encode())


class Clock:
    """What is done and left of a search, in the unit of its budget, and how long that takes."""

    def __init__(self, left: float):
        self.left, self.done, self.begun = left, 0.0, time.monotonic()

    def took(self, cost: float, ran: bool) -> None:
        self.left = max(self.left - cost, 0.0)
        self.done += cost if ran else 0.0
        self.begun = self.begun if self.done else time.monotonic()

    def told(self) -> str:
        return remaining(time.monotonic() - self.begun, self.done, self.left)


def _run(search: Search) -> Tuned:
    steps = zip([Rung(0, 0), *search.rungs], search.rungs)
    each = len(search.seeds) * sum(rung.trials * (rung.at - before.at) for before, rung in steps)
    clock = Clock(each * len(search.spaces))
    for name in search.spaces:
        going, before = list(range(search.trials)), 0.0
        for rung in search.rungs:
            tried, ended = list[Tried](), 0
            for number in going:  # best first: where one fails, the next takes its place
                if ended == rung.trials:
                    break
                line, ran = _trial(search, name, number, rung, tried)
                tried.append(line)
                ended += math.isfinite(line.mean)
                clock.took(len(search.seeds) * (rung.at - before), ran and not line.failed)
                said = f"failed: {line.failed.rstrip('.')}" if line.failed else f"{search.metric} {line.mean:.4g}"
                kept = ", kept" if not ran else ""
                folders.say(
                    f"{name}, trial {number + 1} ({len(tried)} of {rung.trials} to {search.budget.told(rung.at)}): "
                    f"{ranges.told(line.values)}: {said}{kept}{clock.told()}"
                )
            going, before = [one.trial for one in trials.best(tried, len(tried), search.number.higher)], rung.at
    lines = trials.read(search.out / trials.NAME)
    tuned = Tuned.of(search.out, lines, search.spaces, search.rungs, search.budget, search.number, search.config,
                     search.own)  # fmt: skip
    if not tuned.best:
        why = next((one.failed for one in lines if one.failed), "its metric is not finite").rstrip(".")
        raise UserError(f"no trial ran to the end, so there are no best settings: {why}.")
    for name in search.spaces.keys() - tuned.best.keys():
        folders.say(f"no trial of {name} ran to the end: it has no best settings.")
    return tuned.written(search.over, search.seeds, search.reduction)


def _trial(search: Search, name: str, number: int, rung: Rung, before: list[Tried]) -> tuple[Tried, bool]:
    """(a trial at a rung, whether it had to be run): its values were chosen at the first rung."""
    path, first = search.out / trials.NAME, search.rungs[0].at
    lines = {(one.rung, one.trial): one for one in trials.read(path) if one.algorithm == name}
    if (rung.at, number) in lines:
        return lines[rung.at, number], False
    space = search.spaces[name]
    if rung.at == first:
        values = trials.suggested(space.ranges, before, number, search.config.seed, search.number.higher)
    else:
        values = lines[first, number].values
    line = _measured(search, name, number, rung, space, values)
    append(path, line)
    return line, True


def _measured(search: Search, name: str, number: int, rung: Rung, space: Space, values: dict[str, Value]) -> Tried:
    """The trial's metric at the rung, for each seed; of one that fails, the reason."""
    runs = []
    folder = search.out / folders.named_after(name) / f"trial-{number + 1:03}"
    for seed in search.seeds:
        try:
            settings = search.given | {"algorithm": name} | space.settings(values) | {"seed": seed}
            runs.append(_to(search, settings, folder / f"seed-{seed}", rung.at))
        except NotFinite as error:
            return Tried(name, number, rung.at, values, [], [], [], str(error))
        except Exception as error:
            fault = error if isinstance(error, UserError) else plugins.at_fault(error)
            if fault is None:
                raise
            raise type(fault)(f"trial {number + 1} of {name} ({ranges.told(values)}): {fault}") from error
    found = [run.last(search.number.key) for run in runs]
    if any(value is None for value in found):
        raise UserError(
            f"{name!r} has no number {search.metric!r} here: take another --metric, such as personal, or leave it out."
        )
    sent = [int(run.last("bytes") or 0) for run in runs]
    known = [float(value) for value in found if value is not None]
    return Tried(name, number, rung.at, values, known, [len(run.metrics) for run in runs], sent)


def _to(search: Search, settings: dict[str, Any], folder: Path, at: float) -> Any:
    """The run of a folder, once it has spent so much."""
    if (folder / "run.toml").is_file():
        run = read_run(folder) if folders.ended(folder) else None
        if run is not None and search.budget.spent(run.metrics[-1]) >= at:
            return run
        lifecycle.go_on_after_stop(folder)
    watchers = [*settings.get("watchers", ()), Until(budget=search.budget, at=at)]
    federate(**settings | {"out": str(folder), "resume": True, "watchers": watchers})
    return read_run(folder)
