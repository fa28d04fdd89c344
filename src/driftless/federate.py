"""Runs from Python and for the command line: `federate(model=..., data=..., algorithm="scaffold", rounds=50)`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import nn

from driftless import files, folders
from driftless.algorithm import Algorithm
from driftless.assemble import REFERENCES, Experiment, assemble
from driftless.config import Config, from_table
from driftless.data import sources
from driftless.data.sources import Dataset
from driftless.errors import UserError
from driftless.run import Info, Result, execute


def federate(model: nn.Module | str = "auto", data: Any = "digits", algorithm: Algorithm | str = "fedavg", *, loss: Any = None,
             metric: Any = None, on_round: Callable[[Info], None] | None = None, clients: Any = None, progress: bool = False,
             **settings: Any) -> Result:
    """Run one algorithm on your own module, loss and data; settings are those of `Config` (`rounds=50, split="classes(2)"`).

    `data`: a name, a path, a pair of arrays (x, y) of NumPy or torch, a Hugging Face dataset, or a Dataset; `clients` may be a
    number of clients, or a ready Federation. `loss(outputs, y)` and `metric(outputs, y)` (one value a sample) default to cross
    entropy and accuracy. `on_round(info)` is called with each round's record. Raises UserError for what cannot be run.
    """
    if isinstance(clients, int):
        settings["clients"], clients = clients, None
    module = model if isinstance(model, nn.Module) else None
    custom = algorithm if isinstance(algorithm, Algorithm) else None
    named = {"model": "your own" if module is not None else model, "algorithm": custom.name if custom else algorithm}
    dataset = None if isinstance(data, (str, Path)) or clients is not None else as_dataset(data)
    config = from_table({**named, "data": str(data) if dataset is None and clients is None else "your own", **settings}, "federate")
    experiment = assemble(config, dataset, module, loss, metric, custom, clients)
    return _watched(experiment, Path(config.out) if config.out else None, on_round, progress, resume=False)


def as_dataset(data: Any) -> Dataset:
    """Arrays, a Hugging Face dataset, or a Dataset itself, as a Dataset."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, (tuple, list)) and len(data) in (2, 4):
        return sources.from_arrays("your own", *(a.numpy() if isinstance(a, torch.Tensor) else a for a in data))
    if hasattr(data, "features") or hasattr(data, "column_names"):
        return sources.from_huggingface(data, "your own")
    raise UserError(f"data of type {type(data).__name__} is not understood: give (x, y) arrays, (x_train, y_train, x_test, y_test), "
                    "a Hugging Face dataset, a path, or a name.")


def run_config(config: Config, progress: bool = False) -> list[Result]:
    """Run a configuration, once for each of its seeds (into seed-0, seed-1, ... of its folder)."""
    results = []
    for seed in config.seeds or (config.seed,):
        one = replace(config, seed=seed, seeds=(), out=str(Path(config.out) / f"seed-{seed}") if config.out and config.seeds else config.out)
        folder = Path(one.out) if one.out else None
        results.append(_watched(assemble(one), folder, None, progress, resume=False))
    if config.out and progress:
        _tell([Path(config.out)], config.target)
    return results


def resume(folder: Path, progress: bool = False) -> None:
    """Go on with a run; a folder of several seeds goes on with each that is not finished."""
    parts = sorted(folder.glob("seed-*")) if not (folder / "run.toml").is_file() else [folder]
    for part in parts or [folder]:
        config = folders.read_config(part)
        _watched(assemble(config), part, None, progress, resume=True)
    if progress:
        _tell([folder], None)


def compare(paths: list[Path], references: bool, out: Path | None) -> None:
    """Print runs in one table and write one report; the reference rows are made, or gone on with, where none is there."""
    from driftless.report import write_report
    from driftless.results import read_runs

    rows = read_runs(paths)
    first = rows[0]
    present = {str(row.config.get("algorithm")) for row in rows}
    if references:
        for name in REFERENCES:
            if name not in present:
                paths = [*paths, *_reference(name, first, paths[0])]
    _tell(paths, None)
    print(write_report(paths, out or paths[0].parent / "report.html"))


def _reference(name: str, first: Any, beside: Path) -> list[Path]:
    made = []
    for run in first.runs:
        config = replace(from_table(run.config, str(run.path)), algorithm=name, out=None, seeds=(), absent=0.0)
        folder = beside.parent / f"{name}-{folders.digest(config)}"
        there = folder.is_dir() and any(folder.iterdir())
        if not (folder / "model.safetensors").is_file():
            _watched(assemble(config), folder, None, True, resume=there)
        made.append(folder)
    return made


def export(folder: Path, client: str | None, out: Path) -> None:
    """Write the trained global model of a run, or that of one client by name."""
    result = _watched(assemble(folders.read_config(folder)), folder, None, False, resume=True)
    number = None
    if client is not None:
        names = list(result.experiment.federation.names)
        if client not in names:
            raise UserError(f"there is no client {client!r} in {folder}: there are {names[0]} to {names[-1]}.")
        number = names.index(client)
    files.atomic_write(out, safetensors.torch.save(result.model(number)))


def _tell(paths: list[Path], target: float | None) -> None:
    from rich.console import Console

    from driftless.table import compare as table

    console = Console()
    console.print(table(paths, target) if target is not None else table(paths))
    for path in paths:
        for page in ([path / "report.html"] if (path / "report.html").is_file() else sorted(path.glob("seed-*/report.html"))):
            console.print(f"report: {page}", soft_wrap=True)


def _watched(experiment: Experiment, folder: Path | None, on_round: Callable[[Info], None] | None, progress: bool, resume: bool) -> Result:
    """Run an experiment with its progress bar and TensorBoard, where they are asked for."""
    with ExitStack() as stack:
        watchers = [on_round] if on_round else []
        if progress:
            watchers.append(stack.enter_context(_bar(experiment)))
        if experiment.config.tensorboard and folder is not None:
            watchers.append(_tensorboard(folder, stack))

        def tell(info: Info) -> None:
            for watcher in watchers:
                watcher(info)
        return execute(experiment, folder, tell, resume)


class _bar:
    """A progress bar over rounds with the current accuracy."""

    def __init__(self, experiment: Experiment):
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[said]}"), TimeRemainingColumn())
        self.progress = Progress(*columns)
        config = experiment.config
        self.task = self.progress.add_task(f"{config.algorithm} seed {config.seed}", total=config.rounds, said="")
        self.accuracy = ""

    def __enter__(self) -> Callable[[Info], None]:
        self.progress.start()
        return self.show

    def show(self, info: Info) -> None:
        if "global_accuracy" in info:
            self.accuracy = f"accuracy {info['global_accuracy']:.3f}"
        said = self.accuracy if info["answered"] else "nobody answered: nothing changed"
        self.progress.update(self.task, completed=info["round"], said=said)

    def __exit__(self, *error: object) -> None:
        self.progress.stop()


def _tensorboard(folder: Path, stack: ExitStack) -> Callable[[Info], None]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError("TensorBoard is not installed: pip install driftless[tensorboard], or leave --tensorboard out.") from None
    writer = SummaryWriter(str(folder / "tensorboard"))
    stack.callback(writer.close)

    def write(info: Info) -> None:
        for name, value in info.items():
            if isinstance(value, (int, float)) and name != "round":
                writer.add_scalar(name, value, info["round"])
    return write
