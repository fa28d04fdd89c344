"""What a run is to learn: its task, said or read off the targets, with its loss, its metrics and a model's outputs."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from apiece.config.settings import Config, shown
from apiece.data import tasks
from apiece.data.arrays import Dataset, task_of
from apiece.data.federation import Federation
from apiece.errors import UserError, nearest
from apiece.system.device import to_numpy
from apiece.vector.metric import Metric
from apiece.vector.metrics import USUAL, Usual
from apiece.vector.task import ACCURACY, cross_entropy

FEW = 1000  # labels may exceed the number of samples up to here: a small sample may have many classes
LOWER = {*"error errors loss mae mse rmse mape distance perplexity entropy nll divergence".split()}
TAKEN = {"loss", "name", "seen", "samples", "counts", "round", "client"}  # beside a metric in a run's files


class Goal(NamedTuple):
    """A task by name, its loss, and its metrics, the first of which is shown first."""

    task: str = "classification"
    loss: Callable[[Any, Any], Any] = cross_entropy
    metrics: tuple[Metric, ...] = (ACCURACY,)


CLASSES = Goal()


def goal_of(config: Config, task: str, loss: Any = None, metrics: Any = None) -> Goal:
    """The goal of a run with this task; `loss` and `metrics` replace what is usual, as do the metrics of `config`."""
    usual = USUAL[task]
    given = metrics if metrics is not None else config.metrics or None
    return Goal(task, usual.loss if loss is None else loss, metrics_of(given, task))


def task_named(config: Config, clients: Any, dataset: Dataset | None, loss: Any, metrics: Any) -> str:
    """The task that the configuration names, or that the targets say; if loss and metrics are given and nobody named a
    task, it needs no name. UserError for targets of another form.
    """
    own, plain = loss is not None and nameless(metrics), loss is None and metrics is None
    if dataset is not None:
        return (
            tasks.OWN if own and config.task == tasks.AUTO and dataset.targets_train is not None else task_of(dataset)
        )
    if own and config.task == tasks.AUTO:
        return tasks.OWN
    x, y = _some(clients)
    shape = tuple(x.shape[1:]) if isinstance(x, torch.Tensor) else ()
    shape = shape[1:] if len(shape) == 3 else shape
    targets = to_numpy(y) if isinstance(y, torch.Tensor) else y
    if config.task != tasks.AUTO:
        tasks.refuse_misfit(config.task, targets, shape)
        return config.task
    real = isinstance(y, torch.Tensor) and y.is_floating_point()
    if real and y.dim() == 1:
        return "regression"
    found = tasks.inferred(targets, shape)
    if found == "multilabel" and tasks.one_hot(targets):
        raise UserError(
            f"every row of the targets {list(y.shape)} has a single 1: give the classes, y.argmax(1), or "
            "task='multilabel' if a sample may have several."
        )
    if found == tasks.OWN and real and plain:
        raise UserError(
            f"the targets are real numbers of shape {list(y.shape)}, which say no task: say task='forecasting', or "
            "give a loss and metrics of your own."
        )
    return found


def refuse_amounts(task: str, dataset: Dataset, loss: Any, metrics: Any) -> None:
    """Raise UserError for labels that may be amounts, whole numbers that hardly repeat, unless a task, a loss or
    metrics are given. A split by labels would fail at them first.
    """
    if task != tasks.AUTO or loss is not None or metrics is not None:
        return
    known, samples = dataset.known, len(dataset.y_train) + len(dataset.y_test)
    if dataset.targets_train is not None or known is None or known.dtype.kind not in "iu":
        return
    if tasks.whole_amounts(known, samples):
        raise UserError(
            f"{dataset.name} has {len(known):,} different whole numbers as labels of {samples:,} samples: say "
            "task='regression' (--task regression) if they are amounts, or task='classification' if each is a class."
        )


def _some(clients: Any) -> Any:
    """The training pool, else the test pool, else the samples of a client."""
    if isinstance(clients, Federation):
        return clients.pool
    first = next((c for c in clients.participants if clients.size(c)), None)
    if first is None or (isinstance(clients.test_pool[1], torch.Tensor) and len(clients.test_pool[1])):
        return clients.test_pool
    return clients.samples(first).all()


def given_metrics(metric: Any, metrics: Any) -> tuple[tuple[str, ...], Any]:
    """(the names of the given metrics, if all are names, which a run.toml can hold, so that a run continues by it; what
    was given, if not). UserError for both `metric`, one alone, and `metrics`.
    """
    if metric is not None and metrics is not None:
        raise UserError("metric and metrics are both given: give all in metrics.")
    given: Any = [metric] if metric is not None else [metrics] if isinstance(metrics, str) else metrics
    if isinstance(given, (list, tuple)) and given and all(isinstance(name, str) for name in given):
        return tuple(given), None
    return (), given


# --- metrics ---------------------------------------------------------------------------------------------------------
def metrics_of(given: Any, task: str) -> tuple[Metric, ...]:
    """The metrics that are given: names, functions, `Metric`s, a list of these, or a dictionary by name; without any,
    those that the task usually has. Raises UserError for an unknown name, or for a name that stands twice.
    """
    usual = USUAL[task]
    if given is None:
        return tuple(usual.metrics[: usual.shown])
    if isinstance(given, Mapping):
        made = [_one(metric, task, usual, str(name)) for name, metric in given.items()]
    elif isinstance(given, Sequence) and not isinstance(given, str | Metric):
        made = [_one(metric, task, usual) for metric in given]
    else:
        made = [_one(given, task, usual)]
    names = [metric.name for metric in made]
    for name in names:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_@.-]*", name) or name in TAKEN:
            why = "is taken" if name in TAKEN else "is no word of letters, digits and _"
            raise UserError(
                f"a metric is called {name!r}, which {why}: give another name, metrics={{'mine': function}}."
            )
        if names.count(name) > 1:
            raise UserError(
                f"{names.count(name)} metrics are called {name!r}: give each its own, metrics={{'mine': function}}."
            )
    if not made:
        raise UserError("metrics is empty: name one or more, or leave it out.")
    return tuple(made)


def nameless(given: Any) -> bool:
    """Whether metrics are given, and none by a name alone, which means one thing under one task."""
    several = isinstance(given, (Mapping, list, tuple)) and not isinstance(given, Metric)
    parts: Any = given.values() if isinstance(given, Mapping) else given if several else [given]
    return given is not None and not any(isinstance(part, str) for part in parts)


def _one(given: Any, task: str, usual: Usual, name: str = "") -> Metric:
    if isinstance(given, Metric):
        return given._replace(name=name or given.name)
    if isinstance(given, str):
        known = {metric.name: metric for metric in usual.metrics}
        if given not in known:
            raise UserError(f"there is no metric {given!r} for {_for(task)}; {nearest(given, known)}")
        return known[given]._replace(name=name or given)
    if isinstance(given, type) or not callable(given):
        raise UserError(f"a metric is {shown(given)}, which cannot be called: give a function, a name, or a Metric.")
    called = _name(given)
    words = set(re.split(r"[^a-z0-9]+", f"{name} {called}".lower().replace("_", " ")))
    function: Any = given
    return Metric(name or called, function, higher=not words & LOWER)


def _for(task: str) -> str:
    return "a task of your own" if task == tasks.OWN else task


def _name(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", type(function).__name__)
    return "metric" if name == "<lambda>" else name


# --- a model's outputs -----------------------------------------------------------------------------------------------
def outputs_of(task: str, clients: Any, usual: bool, named: bool) -> int:
    """How many numbers a model gives for a sample, or for each of its pixels: one for each class, label or target.
    Raises UserError for labels that the usual loss would ignore, or that would make a named model as large as they are.
    """
    labels = _targets(clients)
    if task in tasks.REAL or any(y.dim() > 1 and y.is_floating_point() for y in labels):
        return max(1, math.prod(max((y.shape[1:] for y in labels), key=math.prod, default=(1,))))
    if task == "multilabel":
        return max((y.shape[1] for y in labels), default=1)
    if unsigned := {y.dtype for y in labels} & {torch.uint8, torch.uint16, torch.uint32, torch.uint64}:
        raise UserError(f"the labels are {unsigned.pop()}, which torch cannot use as classes: give torch.int64.")
    lowest = min((int(y.min()) for y in labels), default=0)
    largest = max((int(y.max()) for y in labels), default=0)
    whole = all(y.dim() < 2 and not y.is_floating_point() for y in labels)
    samples = sum(map(len, labels))
    if whole and usual and lowest < 0:
        raise UserError(
            f"the labels go from {lowest} to {largest}: give classes, counted from 0, or a loss of your own."
        )
    if whole and named and largest >= max(FEW, samples):
        raise UserError(f"the labels go up to {largest}, among {samples} samples: number the classes from 0 on.")
    return max(1, 1 + largest)


def _targets(clients: Any) -> list[torch.Tensor]:
    pools: Iterable[Any] = [clients.test_pool, clients.pool] if isinstance(clients, Federation) else [clients.test_pool]
    return [y for _, y in pools if isinstance(y, torch.Tensor) and len(y)]
