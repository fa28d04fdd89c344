"""Runs from Python and for the command line: `federate(model=..., data=..., algorithm="scaffold", rounds=50)`."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

from torch import nn

from apiece.algebra.composition import Algorithm
from apiece.config.assemble import Experiment, assemble
from apiece.config.checks import refuse_others, refuse_seeds
from apiece.config.goal import given_metrics
from apiece.config.hints import before
from apiece.config.located import located
from apiece.config.objects import parted, with_objects
from apiece.config.settings import AUTO, Config, check
from apiece.config.splitting import columns_of, given_splitter
from apiece.config.tables import from_table, shared
from apiece.data.catalog import OWN
from apiece.data.collating import collated
from apiece.data.columns import refuse_columns
from apiece.data.given import as_dataset
from apiece.data.items import by_client
from apiece.errors import UserError, going_on
from apiece.experiment import folders, identity, lifecycle
from apiece.experiment.progress import Progress, shown
from apiece.experiment.result import Info, Result
from apiece.experiment.run import execute
from apiece.experiment.tell import tell, tell_results
from apiece.experiment.tracking import Tracking
from apiece.experiment.watchers import Watcher
from apiece.language import plugins
from apiece.storage.shared import refuse_unshared
from apiece.system.allocator import enough
from apiece.system.device import to_numpy
from apiece.system.ranks import join, restarted

SHARING = ("split", "unseen", "validation", "measure_on", "noise_rgb", "noise_brightness")  # how data become clients


def federate(
    model: nn.Module | str = "auto",
    data: Any = "digits",
    algorithm: Algorithm | str = "fedavg",
    *,
    loss: Any = None,
    metric: Any = None,
    metrics: Any = None,
    collate: Callable[[list[Any]], Any] | None = None,
    on_round: Callable[[Info], object] | None = None,
    watchers: Sequence[Watcher] = (),
    clients: Any = None,
    progress: bool = False,
    resume: bool = False,
    **settings: Any,
) -> Result:
    """Run one algorithm on your own module, loss and data, and return its metrics and models.

    Args:
        model: a module, or the text of one: "auto" fits the data, "mlp(hidden=[32])".
        data: a name, a path, a pair of arrays (x, y) of NumPy or torch, a frame of pandas or polars, a map-style
            dataset of PyTorch, a Hugging Face dataset, a list or a dictionary with one of these for each client,
            {"train": ..., "test": ...} of any of them, or a Dataset (texts for a module of your own:
            `apiece.data.texts.from_jsonl`). Inputs of several parts are a dict or a tuple of arrays, and sequences of
            unequal length a list: they are padded, and the model gets a mask too.
        algorithm: an expression, "scaffold + relaxed_init(0.1)", or an Algorithm.
        loss: a function of (outputs, y) in place of the task's.
        metric: one metric alone.
        metrics: names, functions of (outputs, y) that give one value per sample or one number for all, or
            `apiece.Metric`s: a list of these, or a dictionary by name.
        collate: makes (x, y) of a list of samples of any kind, once for all.
        on_round: is called with each round's record, which also has `info.model()`, `info.clients` and `info.server`;
            if it returns "stop", the run ends with that round (`early_stopping`).
        watchers: each is called with the `Round` itself, before it is written: numbers that it returns,
            `{"mine": 0.5}`, join the record.
        clients: a number, or a ready Federation.
        progress: whether a bar in the terminal shows how far the run is.
        resume: continue the run in the folder `out`, and start it if there is none yet.
        settings: those of `Config`, by name: `rounds=50, split="classes(2)"`. `split` may also be a list of indices
            for each client, or a dictionary of them by name. `task="regression"` says what is learned where the targets
            do not; it decides the usual loss and metrics. `optimizer`, `server`, `schedule`, `augment`, `weighting`,
            `steps`, `lr` and `sampling` are text or a number, as on the command line, or objects and functions:
            optimizers on vectors, a factor of the step size by (round, rounds), a pure function of a batch, a weight by
            number of samples; a number of local steps, or a step size, by client's name, as a function, a dictionary or
            a list; `sampling(round, generator, count)` gives the places, from 0 to count - 1, of those who are asked
            among the clients that take part, draws from that generator alone, and replaces `cohort`.

    Raises UserError for what cannot be run.

    >>> result = federate(algorithm="scaffold", clients=10, split="dirichlet(0.5)", rounds=12, steps=10)
    >>> result.metrics[-1]["global_accuracy"] > 0.8  # of the bundled digits; chance is 0.1
    True
    """
    if isinstance(clients, Integral):
        settings["clients"], clients = clients, None
    refuse_others(model, data, algorithm, loss, on_round, clients, watchers, collate)
    refuse_seeds(settings)
    settings, replaced = parted(settings)
    by_name, metrics = given_metrics(metric, metrics)
    settings |= {"metrics": by_name} if by_name else {}
    module = model if isinstance(model, nn.Module) else None
    custom = algorithm if isinstance(algorithm, Algorithm) else None
    named = {"model": OWN if module is not None else model, "algorithm": custom.name if custom else algorithm}
    splitter = given_splitter(settings.get("split"))
    objects = not isinstance(data, (str, Path)) and clients is None
    if objects and collate is not None:
        data = collated(OWN, data, collate)
    if objects and by_client(data) and str(settings.get("split", AUTO)) == AUTO:
        settings["split"] = "given"
    texts = named | settings | ({"split": OWN} if splitter is not None else {})
    config = from_table({"data": str(data) if not objects and clients is None else OWN} | texts, "federate")
    check(config)
    folder = Path(config.out) if config.out else None
    there = resume and folder is not None and join().everyone((folder / "run.toml").is_file())[0]
    config = identity.as_kept(folder, config) if folder is not None and there else located(config)
    if clients is not None:
        refuse_columns("what clients= holds", columns_of(config))
        if useless := [name for name in SHARING if name in settings]:
            raise UserError(f"clients= are ready, and {useless[0]} would change nothing: leave it out.")
    dataset = as_dataset(data, columns_of(config)) if objects else None
    experiment = _assembled(config, dataset, module, loss, metrics, custom, clients, splitter)
    experiment = with_objects(experiment, replaced)
    return watched(experiment, folder, on_round, progress, there, watchers)


def run_config(config: Config, progress: Progress = False) -> list[Result]:
    """Run a configuration, once for each of its seeds (into seed-0, seed-1, ... of its folder)."""
    from apiece.report.page import write_report

    ranks = join()
    with ranks.together():
        check(config)
    out = Path(config.out) if config.out else None
    if out is not None and restarted() and ranks.everyone((out / "run.toml").is_file())[0]:
        resume(out, progress, plugin=config.plugin)
        return []

    with ranks.together():
        config = located(replace(config, plugin=plugins.pinned(config.plugin)))

    with going_on(_goes_on(out, config), out), ExitStack() as stack:
        if out is not None and config.seeds:
            refuse_unshared(out, ranks)
            ranks.first(lambda: folders.refuse_existing(out))
            ranks.first(lambda: folders.write_config(out, config))
            ranks.first(lambda: stack.enter_context(folders.alone(out)))  # another start at once ends here
            stack.enter_context(lifecycle.unless_begun(out))
        results = [watched(_assembled(one), part, None, progress, resume=False) for one, part in _each(config, out)]
    if not ranks.leads:
        return results
    if out is not None and config.seeds:
        write_report([out], out, config.target)
    if progress is True:
        tell([out], config.target, out / "report.html") if out is not None else tell_results(results, config.target)
    return results


def _each(config: Config, folder: Path | None) -> list[tuple[Config, Path | None]]:
    """The run and its folder, or one run per seed and the folder of each."""
    parts = [(seed, folder and folder / f"seed-{seed}") for seed in config.seeds] or [(config.seed, folder)]
    return [(replace(config, seed=seed, seeds=(), out=str(part) if part else None), part) for seed, part in parts]


def resume(
    folder: Path,
    progress: Progress = False,
    device: str | None = None,
    on_bad_client: Literal["stop", "skip"] | None = None,
    plugin: Sequence[str] = (),
    rounds: int | None = None,
    patience: float | None = None,
) -> None:
    """Continue a run; of a run with several seeds, continue those that were begun, and begin the others. Device, answer
    to bad clients, rounds and patience are the run's own, unless given. `plugin`: the plug-in files of the run.
    """
    from apiece.report.page import write_report

    ranks = join()
    with ranks.together():
        there = folders.recorded(folder)
        parts = [part for _, part in _each(there, folder) if part is not None]
    stopped = ranks.from_first(
        lambda: [p for p in parts if (p / "run.toml").is_file() and "stopped" in folders.noted(p)]
    )
    ended = rounds is None or (rounds == there.rounds and not stopped)
    if ended and ranks.from_first(lambda: all(map(lifecycle.complete, parts))):
        if ranks.leads and progress != "json":
            past = f"{there.rounds} rounds" if not stopped else f"round {folders.noted(stopped[0])['stopped']}, stopped"
            own = OWN in vars(there).values()
            more = "its program or `apiece deploy resume` continues" if own else "--rounds N continues"
            print(f"{folder} has ended after {past}: see {folder / 'report.html'}; {more} the run.")
        return
    given = {"device": device, "on_bad_client": on_bad_client, "rounds": rounds, "patience": patience}
    with ranks.together():
        config = folders.read_config(folder, plugin)
        config = replace(config, **{name: value for name, value in given.items() if value is not None})
        check(config)
        for one, part in _each(config, folder):
            if part is not None and (part / "run.toml").is_file():
                identity.refuse_other_settings(folder, part, one)
                lifecycle.refuse_lost(part)
    if rounds is not None:
        ranks.first(lambda: [lifecycle.go_on_after_stop(part) for part in stopped])
    if config.seeds and config.rounds != there.rounds:
        ranks.first(lambda: folders.write_rounds(folder, config.rounds))
    for one, part in _each(config, folder):
        assert part is not None
        begun = ranks.everyone((part / "run.toml").is_file())[0]
        with going_on(_goes_on(folder, config)):
            watched(_assembled(one), part, None, progress, resume=begun)
    if config.seeds and ranks.leads:
        write_report([folder], folder, config.target)
    if progress is True and ranks.leads:
        tell([folder], config.target, folder / "report.html")


def whole(config: Config, folder: Path) -> bool:
    """Whether the run in a folder has ended, after all of the configuration's rounds."""
    return folders.ended(folder) and folders.recorded(folder).rounds == config.rounds


def ensure(config: Config, folder: Path, progress: Progress = False) -> None:
    """Make sure that the folder holds the whole run of a configuration: continue a run that was stopped or has fewer
    rounds, begin one if there is none, and keep one that has ended.

    Raises UserError if the folder holds the run of another configuration, or on other data.
    """
    ranks = join()
    with ranks.together():
        identity.refuse_another(folder, config)
        config = identity.as_kept(folder, config)
    there = ranks.everyone((folder / "run.toml").is_file())[0]
    if ranks.from_first(lambda: whole(config, folder)):
        if Path(config.data).exists():  # a file may hold other data now, which runs beside this one would have
            identity.refuse_other_data(folder, _assembled(config))
        return
    watched(_assembled(replace(config, out=str(folder))), folder, None, progress, resume=there)


def _assembled(config: Config, *given: Any) -> Experiment:
    """`assemble` on every rank; raises UserError for what several ranks cannot run, or were not given alike."""
    ranks = join()
    with ranks.together():
        if ranks.world > 1 and not config.device.startswith("cpu"):
            raise UserError(
                f"device={config.device!r} is for one process: take --device cpu, or begin without torchrun."
            )
        experiment = assemble(config, *given)
    if ranks.world > 1:
        found = shared(experiment.config)
        found["the fingerprint of the data"] = experiment.fingerprint
        if config.model == OWN:  # the program may have drawn its first weights at random
            weights = to_numpy(experiment.federated.setup.initial).tobytes()
            found["the fingerprint of the module's weights"] = f"{zlib.crc32(weights):08x}"
        ranks.refuse_others(found)
    return experiment


def watched(
    experiment: Experiment,
    folder: Path | None,
    on_round: Callable[[Info], object] | None,
    progress: Progress,
    resume: bool,
    watchers: Sequence[Watcher] = (),
) -> Result:
    """Run an experiment with what shows its progress and its trackers, if they are asked for."""
    ranks = join()
    if folder is not None:
        refuse_unshared(folder, ranks)
        if not resume:  # before anything is said of the run
            ranks.first(lambda: folders.refuse_existing(folder))
    for sentence in before(experiment, bool(progress)) if ranks.leads and not resume else ():
        folders.say_once(sentence)
    with ExitStack() as stack:
        stack.enter_context(going_on(_goes_on(folder, experiment.config), folder))
        showing = stack.enter_context(shown(experiment, ranks.leads and progress))
        told = [*([on_round] if on_round else []), *showing.rounds]
        tracking = stack.enter_context(Tracking(experiment, folder, ranks.leads))
        with enough("the run"):
            return tracking.end(execute(experiment, folder, [*told, tracking], resume, watchers, showing.lift))


def _goes_on(folder: Path | None, config: Config) -> str:
    """How to continue an interrupted run."""
    if folder is None:
        return "nothing was saved, as no --out was given"
    return f"`{folders.resuming(folder, config)}` continues the run"
