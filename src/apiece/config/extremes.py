"""Whether a model and a loss take the largest and smallest whole numbers among samples and targets: tokens, classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from apiece.data.federation import Federation
from apiece.errors import UserError, typed
from apiece.vector.task import Task, scores


def check_whole_numbers(task: Task, theta: Tensor, buffers: Tensor, clients: Any) -> None:
    """Raise UserError for a sample whose whole numbers the model or the loss does not take, as tokens beyond those that
    a model knows, and for a language model whose targets are its inputs.
    """
    if not isinstance(clients, Federation):
        return
    for part, pool in (("training", clients.pool), ("test", clients.test_pool)):
        for row in _extremes(pool):
            x, y = tree_map(lambda leaf, row=row: leaf[[row, row]], pool)
            try:
                task.loss(task.space.outputs(theta, x, buffers), y)
            except UserError:
                raise
            except Exception as error:  # another's code may raise anything
                numbers = [f"{int(leaf.min())} to {int(leaf.max())}" for leaf in tree_leaves((x, y)) if _whole(leaf)]
                raise UserError(
                    f"the model or the loss does not take {part} sample {row} (counted from 0), with whole numbers "
                    f"from {' and from '.join(numbers)}: {typed(error)}."
                ) from error
    _refuse_copies(task, theta, buffers, clients.pool)


def _whole(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and not leaf.is_floating_point() and leaf.dtype not in (torch.bool, torch.uint8)


def _extremes(pool: Any) -> list[int]:
    """The rows with the largest and the smallest number of each part that consists of whole numbers."""
    parts = [leaf.flatten(1) for leaf in tree_leaves(pool) if _whole(leaf) and leaf.dim() > 1 and leaf.numel()]
    return sorted({int(end) for part in parts for end in (part.amax(1).argmax(), part.amin(1).argmin())})


def _refuse_copies(task: Task, theta: Tensor, buffers: Tensor, pool: Any) -> None:
    """Refuse targets that a language model reads as inputs at the same place: it would learn to copy."""
    x, y = pool
    tokens = [leaf for leaf in tree_leaves(x) if _whole(leaf) and isinstance(y, Tensor) and leaf.shape == y.shape]
    if not any(torch.equal(torch.where(y < 0, leaf, y), leaf) for leaf in tokens if leaf.dim() == 2 and len(leaf)):
        return
    outputs = scores(task.space.outputs(theta, tree_map(lambda leaf: leaf[:1], x), buffers))
    if isinstance(outputs, Tensor) and outputs.shape[:-1] == y[:1].shape:
        raise UserError(
            "the targets are the model's own inputs, which it would learn to copy: give each token's next one as its "
            "target, x = ids[:, :-1] and y = ids[:, 1:]."
        )
