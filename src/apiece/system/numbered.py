"""What local steps look up by their number, which no recording of them may contain: see `lifts/loops.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

alias = torch.ops.aten.alias.default


class Number(NamedTuple):
    """The number of a recorded step: which step it is that is recorded, and its number as a tensor."""

    recorded: int
    value: Tensor


def nth(values: Tensor, k: int | Tensor) -> Tensor:
    """values[k] of values [K, ...].

    >>> nth(torch.arange(3), 1), nth(torch.arange(3), torch.tensor(1))
    (tensor(1), tensor(1))
    """
    return values.index_select(0, k.reshape(1)).squeeze(0) if isinstance(k, Tensor) else values[k]


def by_number(values: Tensor | Sequence[Any]) -> Callable[[Any], Any]:
    """k -> values[k] of values [K, ...], or of K trees of tensors; where these differ in shape, k must be a number.

    >>> by_number([torch.zeros(2), torch.ones(2)])(torch.tensor(1))
    tensor([1., 1.])
    """
    if isinstance(values, Tensor):
        rows = values.unbind()  # before the first step, so that a row is an input of its step

        def row(k: Any) -> Tensor:
            if isinstance(k, Number):
                return alias(rows[k.recorded])  # the mark of a row that is taken by the step's own number
            return nth(values, k) if isinstance(k, Tensor) else rows[k]

        return row
    if len({tuple(leaf.shape for leaf in tree_leaves(tree)) for tree in values}) != 1:
        return values.__getitem__
    whole = tree_map(lambda *leaves: by_number(torch.stack(leaves)), *values)
    return lambda k: tree_map(lambda row: row(k), whole)
