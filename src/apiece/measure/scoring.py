"""How well a model, or many at once, does on rows of a pool of samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from apiece.lifts.lift import Parallel, Vectorized, padded
from apiece.vector.task import Task, targets

CHUNK, TOKENS = 100, 8192  # samples or tokens per forward pass: a LeNet's activations stay in a core's cache


class Scores(NamedTuple):
    """A metric's value for each sample [n], the mean loss, and how many targets each sample has [n]: its weight."""

    values: Tensor
    loss: float
    targets: Tensor

    @property
    def mean(self) -> float:
        return self.mean_of(slice(None)) if len(self.values) else float("nan")

    def mean_of(self, rows: Any) -> float:
        """The mean over these samples."""
        return float((self.values[rows] * self.targets[rows]).sum() / self.targets[rows].sum())


@torch.no_grad()
def score(
    task: Task,
    predict: Callable[[Any], Tensor],
    pool: Any,
    rows: Tensor,
    threads: Parallel | None = None,
) -> Scores:
    """The metric and loss of a predictor on these rows of a pool, in pieces of CHUNK samples or TOKENS tokens."""

    def part(index: Tensor) -> tuple[Tensor, Tensor, float]:
        with torch.no_grad():
            x, y = tree_map(lambda leaf: leaf[index], pool)
            outputs, count = predict(x), targets(y)
            return _values(task, outputs, y), count, float(task.loss(outputs, y)) * int(count.sum())

    if not len(rows):
        return Scores(torch.zeros(0, dtype=torch.float64), float("nan"), torch.zeros(0))
    jobs = (partial(part, index) for index in rows.split(_samples_a_pass(pool)))
    parts = threads.in_order(jobs) if threads else (job() for job in jobs)
    values, counts, losses = zip(*parts, strict=True)
    count = torch.cat(counts)
    return Scores(torch.cat(values), sum(losses) / int(count.sum()), count)


@torch.no_grad()
def score_each(
    task: Task, predictors: Sequence[Callable[[Any], Tensor]], pool: Any, rows: Sequence[Tensor]
) -> list[Scores]:
    """The metric of each predictor on its own rows, one pass each; all are measured in one call."""
    sizes, index = list(map(len, rows)), torch.cat(list(rows))
    x, y = tree_map(lambda leaf: leaf[index], pool)
    leaves, form = tree_flatten(x)
    parts = zip(*(leaf.split(sizes) for leaf in leaves), strict=True)
    outputs = [predict(tree_unflatten(part, form)) for predict, part in zip(predictors, parts, strict=True)]
    return _of_many(task, outputs, y, sizes)


@torch.no_grad()
def score_together(
    task: Task,
    lift: Vectorized,
    models: Sequence[tuple[Tensor, Tensor]],
    pool: tuple[Tensor, Any],
    rows: Sequence[Tensor],
) -> list[Scores]:
    """The metric of S models (parameters, buffers), each on its own rows, in calls that take all models at once."""
    sizes, index = list(map(len, rows)), torch.cat(list(rows))
    thetas, buffers = (torch.stack(parts) for parts in zip(*models, strict=True))
    places = torch.stack([padded(own, max(sizes)) for own in rows])  # [S, most]
    forward = torch.func.vmap(task.space.outputs)
    parts = places.split(_samples_a_pass(pool), 1)
    outputs = torch.cat([lift.call(forward, thetas, pool[0][part], buffers) for part in parts], 1)
    own = [part[:size] for part, size in zip(outputs.unbind(), sizes, strict=True)]
    return _of_many(task, own, tree_map(lambda leaf: leaf[index], pool[1]), sizes)


def _of_many(task: Task, outputs: list[Tensor], y: Any, sizes: list[int]) -> list[Scores]:
    """Each model's scores from all outputs and targets, `sizes` of which are its own, measured in one call."""
    values, counts = _values(task, torch.cat(outputs), y).split(sizes), targets(y).split(sizes)
    return [Scores(own, float("nan"), count) for own, count in zip(values, counts, strict=True)]


def _values(task: Task, outputs: Tensor, y: Any) -> Tensor:
    return task.metric(outputs, y).reshape(-1).to(torch.float64)


def _samples_a_pass(pool: Any) -> int:
    x = pool[0]
    tokens = isinstance(x, Tensor) and x.dim() == 2 and not x.is_floating_point()
    return max(1, TOKENS // x.shape[1]) if tokens else CHUNK
