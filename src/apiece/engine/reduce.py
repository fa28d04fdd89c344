"""Answers become means as they arrive: unnormalized sums in float64, in the cohort's order, divided once who answered
is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from apiece.algebra.message import MARKS, Message, PerClient, Sum, Uniform, Weighted
from apiece.algebra.trees import alike, described
from apiece.errors import UserError
from apiece.system.ranks import Ranks
from apiece.system.typed import divided, map_tree, map_trees


def _marked(node: Any) -> bool:
    return isinstance(node, MARKS)


def _leaves(tree: Any) -> list[Any]:
    """The marked leaves in the order of `tree_flatten`, at a tenth of its price: this is done for every client."""
    if isinstance(tree, MARKS):
        return [tree]
    parts: Iterable[Any] = cast("dict[str, Any]", tree).values() if isinstance(tree, dict) else tree
    return [leaf for part in parts for leaf in _leaves(part)]


def with_marks(message: Message, mark: type) -> Message:
    """The message with the marks of the model's own parts: with which weight a delta counts, and how weights do."""
    weight = PerClient(message.weight) if mark is PerClient else Sum(message.weight)
    return message._replace(delta=mark(message.delta), buffers=Weighted(message.buffers), weight=weight)


class Totals:
    """Running sums of trees whose leaves are marked Uniform, Weighted, Sum or PerClient. Memory does not grow with the
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
        leaves = _leaves(said)
        if self._spec is None:
            self._spec, self._marks = tree_flatten(said, is_leaf=_marked)[1], [type(leaf) for leaf in leaves]
            self._like = [leaf.x for leaf in leaves]
            self._sums = [() if isinstance(leaf, PerClient) else map_tree(_zeros_like, leaf.x) for leaf in leaves]
        self.answered.append(client)
        self.weight += weight
        for total, leaf, like in zip(self._sums, leaves, self._like, strict=True):
            if not alike(leaf.x, like):
                raise UserError(
                    f"a client sent a {type(leaf).__name__} of {described(leaf.x)}, and another one of "
                    f"{described(like)}: give a report the same shape and type at every client."
                )
            factor = weight if isinstance(leaf, Weighted) else 1.0
            if isinstance(total, Tensor):
                total.add_(leaf.x, alpha=factor)  # computed in float64
            elif not isinstance(leaf, PerClient):
                map_trees(partial(_add, factor), total, leaf.x)
        if PerClient in self._marks:
            self.rows[client] = tree_unflatten(
                [leaf if isinstance(leaf, PerClient) else () for leaf in leaves], self._spec
            )

    def over(self, ranks: Ranks) -> Totals:
        """The totals of all ranks together: the same on each."""
        if ranks.world == 1:
            return self
        form = None if self._spec is None else tree_unflatten(self._marks, self._spec)
        parts = ranks.everyone((self.answered, self.weight, self.rows, form, map_tree(_form, self._like)))
        form, like = next((part[3:] for part in parts if part[3] is not None), (None, list[Any]()))
        marks, spec = tree_flatten(form) if form is not None else ([], None)
        whole, mine = Totals(), tree_leaves(self._sums)
        whole.answered = [client for part in parts for client in part[0]]
        whole.weight = sum(part[1] for part in parts)
        whole.rows = {client: row for part in parts for client, row in part[2].items()}
        whole._spec, whole._marks, whole._like = spec, marks, like
        empty = [() if m is PerClient else map_tree(_zeros, x) for m, x in zip(marks, like, strict=True)]
        zeros, form = tree_flatten(empty)
        sums = ranks.total(flat(mine if self._spec is not None else zeros))
        parted = divided(sums, [leaf.numel() for leaf in zeros]) if zeros else ()
        whole._sums = tree_unflatten([part.view(z.shape) for part, z in zip(parted, zeros, strict=True)], form)
        return whole

    def result(self) -> Any:
        """The tree of means and sums, with its marks, in the type that was said; `()` where nobody answered."""
        if self._spec is None:
            return ()
        scale = {Uniform: len(self.answered), Weighted: self.weight}
        out: list[Any] = []
        for mark, total, like in zip(self._marks, self._sums, self._like, strict=True):
            by = scale.get(mark, 1.0)
            if mark is PerClient:
                out.append(PerClient(()))
            else:
                divide = _as_said if mark is Sum else partial(_divide, by)
                out.append(mark(map_trees(divide, total, like)))
        return tree_unflatten(out, self._spec)


def _form(x: Tensor) -> Tensor:
    return torch.empty_like(x, device="meta")


def _zeros_like(x: Tensor) -> Tensor:
    return torch.zeros_like(x, dtype=torch.float64)


def _zeros(x: Tensor) -> Tensor:
    return torch.zeros(x.shape, dtype=torch.float64)


def with_rows(mean: Any, said: list[Any]) -> Any:
    """The means of reports, each mark of PerClient with what the clients said stacked in it: [S, ...]."""
    leaves, spec = tree_flatten(mean, is_leaf=_marked)
    if not any(isinstance(leaf, PerClient) for leaf in leaves):
        return mean
    each = zip(*map(_leaves, said), strict=True)  # theirs hold nothing but rows
    stacked = (PerClient(tree_map(lambda *x: torch.stack(x), *(one.x for one in rows))) for rows in each)
    return tree_unflatten([next(stacked) if isinstance(leaf, PerClient) else leaf for leaf in leaves], spec)


def _add(factor: float, total: Tensor, x: Tensor) -> Tensor:
    return total.add_(x.to(torch.float64), alpha=factor)


def _divide(by: float, total: Tensor, like: Tensor) -> Tensor:
    """The mean in the type that was said; that of whole numbers is none, and stays float64."""
    mean = total / by if by != 1.0 else total
    return mean.to(like.dtype) if like.is_floating_point() else mean


def _as_said(total: Tensor, like: Tensor) -> Tensor:
    return total.to(like.dtype)


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors as one float64 vector."""
    return torch.cat([t.reshape(-1).double() for t in tensors]) if tensors else torch.zeros(0, dtype=torch.float64)
