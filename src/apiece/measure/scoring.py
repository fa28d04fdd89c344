"""How well a model, or many at once, does on rows of a pool of samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from apiece.errors import UserError, said
from apiece.lifts.lift import Parallel, Vectorized, padded
from apiece.system.device import to_host
from apiece.vector.metric import Metric
from apiece.vector.task import Task, targets

CHUNK, TOKENS = 100, 8192  # samples or tokens per forward pass: a LeNet's activations stay in a core's cache
ON_A_GPU = 10  # times as many of one model: it has no work from fewer
Values = dict[str, float]  # by metric; one that the samples do not define is left out


class Scores(NamedTuple):
    """What metrics are made from, for n samples: the values of each metric over samples, [n] or [n, ...], in the task's
    order; the mean loss; how many targets each sample has [n], its weight; and, if a metric is over all predictions,
    (outputs, targets) themselves. All of it is on the host: a client's numbers are many operations on few samples.
    """

    values: tuple[Tensor, ...]
    loss: float
    targets: Tensor
    predicted: Any = None

    def of(self, metrics: Sequence[Metric], rows: Any = slice(None)) -> Values:
        """Each metric's number for these samples, whose places are on the host too; without the numbers that the
        samples do not define: NaN, though all that they are made from is finite.
        """
        values, found = iter(self.values), Values()
        for metric in metrics:
            parts: Any = (
                next(values)[rows] if metric.over == "samples" else tree_map(lambda leaf: leaf[rows], self.predicted)
            )
            number = _number(metric, parts, self.targets[rows])
            if not math.isnan(number) or not all(bool(leaf.isfinite().all()) for leaf in tree_leaves(parts)):
                found[metric.name] = number
        return found


def _number(metric: Metric, parts: Any, count: Tensor) -> float:
    """A metric's number, from the values of samples [n, ...] and their weights [n], or from (outputs, targets)."""
    if metric.over == "all":
        return float(_called(metric, *parts))
    if parts.dim() == 1:
        mean = (parts * count).sum() / count.sum()
    else:
        mean = (parts * count.view(-1, *[1] * (parts.dim() - 1))).sum(0) / count.sum()
    return float(mean if metric.finish is None else metric.finish(mean))


def _called(metric: Metric, outputs: Any, y: Any) -> Any:
    try:
        return metric.function(outputs, y)
    except UserError:
        raise
    except Exception as error:  # a function of the user's may raise anything
        raise UserError(f"the metric {metric.name!r} fails: {said(error)}") from error


@torch.no_grad()
def score(
    task: Task,
    predict: Callable[[Any], Any],
    pool: Any,
    rows: Tensor,
    threads: Parallel | None = None,
) -> Scores:
    """The scores and loss of a predictor on these rows of a pool, in pieces of CHUNK samples or TOKENS tokens; a last
    sample joins the piece before it, as a model that normalizes by the batch takes no single one.
    """

    def part(index: Tensor) -> tuple[Scores, float]:
        with torch.no_grad():
            x, y = tree_map(lambda leaf: leaf[index], pool)
            outputs = predict(x)
            scores = _scores(task, outputs, y)
            known = int(scores.targets.sum())
            return scores, float(task.loss(outputs, y)) * known if known else 0.0

    if not len(rows):
        return Scores((), float("nan"), torch.zeros(0))
    more = rows.is_cuda and not task.space.by_batch  # whose outputs shall be the same on every device
    at_once = _samples_a_pass(pool) * (ON_A_GPU if more else 1)
    jobs = (partial(part, index) for index in rows.tensor_split(list(range(at_once, len(rows) - 1, at_once))))
    parts, losses = zip(*(threads.in_order(jobs) if threads else (job() for job in jobs)), strict=True)
    values = tuple(torch.cat(own) for own in zip(*(each.values for each in parts), strict=True))
    count = torch.cat([each.targets for each in parts])
    predicted = None if parts[0].predicted is None else joined([each.predicted for each in parts])
    total = int(count.sum())
    return to_host(Scores(values, sum(losses) / total if total else float("nan"), count, predicted))


@torch.no_grad()
def score_each(
    task: Task, predictors: Sequence[Callable[[Any], Any]], pool: Any, rows: Sequence[Tensor]
) -> list[Scores]:
    """The scores of each predictor on its own rows, one pass each; all are measured in one call."""
    sizes, index = list(map(len, rows)), torch.cat(list(rows))
    x, y = tree_map(lambda leaf: leaf[index], pool)
    outputs = [predict(part) for predict, part in zip(predictors, divided(x, sizes), strict=True)]
    return _of_many(task, outputs, y, sizes)


@torch.no_grad()
def score_together(
    task: Task,
    lift: Vectorized,
    models: Sequence[tuple[Tensor, Tensor]],
    pool: tuple[Tensor, Any],
    rows: Sequence[Tensor],
) -> list[Scores]:
    """The scores of S models (parameters, buffers), each on its own rows, in calls that take all models at once."""
    sizes, index = list(map(len, rows)), torch.cat(list(rows))
    thetas, buffers = (torch.stack(parts) for parts in zip(*models, strict=True))
    places = torch.stack([padded(own, max(sizes)) for own in rows])  # [S, most]
    forward = torch.func.vmap(task.space.outputs)
    parts = places.split(_samples_a_pass(pool), 1)
    outputs = joined([lift.call(forward, thetas, pool[0][part], buffers) for part in parts], 1)
    own = [tree_map(lambda leaf, i=i, size=size: leaf[i, :size], outputs) for i, size in enumerate(sizes)]
    return _of_many(task, own, tree_map(lambda leaf: leaf[index], pool[1]), sizes)


def _of_many(task: Task, outputs: list[Any], y: Any, sizes: list[int]) -> list[Scores]:
    """Each model's scores from all outputs and targets, `sizes` of which are its own, measured in one call."""
    all_of = to_host(_scores(task, joined(outputs), y))
    values = [own.split(sizes) for own in all_of.values]
    counts, predicted = all_of.targets.split(sizes), divided(all_of.predicted, sizes)
    return [Scores(tuple(own[i] for own in values), float("nan"), counts[i], predicted[i]) for i in range(len(sizes))]


def _scores(task: Task, outputs: Any, y: Any) -> Scores:
    count, whole = targets(y), any(metric.over == "all" for metric in task.metrics)
    values = tuple(_values(metric, outputs, y, len(count)) for metric in task.metrics if metric.over == "samples")
    return Scores(values, float("nan"), count, (outputs, y) if whole else None)


def _values(metric: Metric, outputs: Any, y: Any, samples: int) -> Tensor:
    found = _called(metric, outputs, y).to(torch.float64)
    return found.reshape(-1) if metric.finish is None else found.reshape(samples, *found.shape[1:])


def joined(trees: Sequence[Any], dim: int = 0) -> Any:
    """Trees of one form with their tensors one after the other."""
    if isinstance(trees[0], Tensor):
        return torch.cat(list(trees), dim)
    leaves, form = zip(*map(tree_flatten, trees), strict=True)
    return tree_unflatten([torch.cat(parts, dim) for parts in zip(*leaves, strict=True)], form[0])


def divided(tree: Any, sizes: list[int]) -> list[Any]:
    """The inverse of `joined`: the trees of the first `sizes[0]` samples, of the next, ..."""
    if tree is None:
        return [None] * len(sizes)
    leaves, form = tree_flatten(tree)
    return [tree_unflatten(part, form) for part in zip(*(leaf.split(sizes) for leaf in leaves), strict=True)]


def _samples_a_pass(pool: Any) -> int:
    x = tree_leaves(pool[0])[0]
    tokens = x.dim() == 2 and not x.is_floating_point()
    return max(1, TOKENS // x.shape[1]) if tokens else CHUNK
