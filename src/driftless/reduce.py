"""Answers become means as they arrive: unnormalised sums in float64, in the cohort's order, divided once who answered
is known.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from driftless.piece import Rows, Sum, Uniform, Weighted

MARKS = (Uniform, Weighted, Sum, Rows)


def _marked(node: Any) -> bool:
    return isinstance(node, MARKS)


class Totals:
    """Running sums of trees whose leaves are marked Uniform, Weighted, Sum or Rows. Memory does not grow with the
    cohort but for the rows that an algorithm asks for."""

    def __init__(self) -> None:
        self.answered: list[int] = []
        self.weight = 0.0
        self.rows: dict[int, Any] = {}
        self._sums: list[Any] = []
        self._spec: Any = None
        self._marks: list[type] = []
        self._like: list[Any] = []

    def add(self, client: int, said: Any, weight: float = 1.0) -> None:
        """Count one client's answer."""
        leaves, spec = tree_flatten(said, is_leaf=_marked)
        if self._spec is None:
            self._spec, self._marks = spec, [type(leaf) for leaf in leaves]
            self._like = [leaf.x for leaf in leaves]
            self._sums = [
                None if isinstance(leaf, Rows) else tree_map(lambda x: torch.zeros_like(x, dtype=torch.float64), leaf.x)
                for leaf in leaves
            ]
        self.answered.append(client)
        self.weight += weight
        for total, leaf in zip(self._sums, leaves, strict=True):
            factor = weight if isinstance(leaf, Weighted) else 1.0
            if isinstance(total, Tensor):
                total.add_(leaf.x, alpha=factor)  # computed in float64
            elif total is not None:
                tree_map(lambda t, x, factor=factor: t.add_(x.to(torch.float64), alpha=factor), total, leaf.x)
        if Rows in self._marks:
            self.rows[client] = tree_unflatten([leaf if isinstance(leaf, Rows) else () for leaf in leaves], spec)

    def result(self) -> Any:
        """The tree of means and sums, with its marks, in the type that was said; `()` where nobody answered."""
        if self._spec is None:
            return ()
        scale = {Uniform: len(self.answered), Weighted: self.weight, Sum: 1.0}
        out = []
        for mark, total, like in zip(self._marks, self._sums, self._like, strict=True):
            if mark is Rows:
                out.append(Rows(()))
            else:
                out.append(mark(tree_map(lambda t, x, s=scale[mark]: _divide(t, s).to(x.dtype), total, like)))
        return tree_unflatten(out, self._spec)


def with_rows(mean: Any, said: list[Any]) -> Any:
    """The means of reports, each mark of Rows with what the clients said stacked in it: [S, ...]."""
    leaves, spec = tree_flatten(mean, is_leaf=_marked)
    if not any(isinstance(leaf, Rows) for leaf in leaves):
        return mean
    each = zip(*(tree_flatten(one, is_leaf=_marked)[0] for one in said), strict=True)  # theirs hold nothing but rows
    stacked = (Rows(tree_map(lambda *x: torch.stack(x), *(one.x for one in rows))) for rows in each)
    return tree_unflatten([next(stacked) if isinstance(leaf, Rows) else leaf for leaf in leaves], spec)


def _divide(total: Tensor, by: float) -> Tensor:
    return total / by if by != 1.0 else total
