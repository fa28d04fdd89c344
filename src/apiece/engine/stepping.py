"""How local steps are taken: one client at a time, or many clients in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, Self, cast

import torch
from torch import Tensor

from apiece.system.typed import map_tree

Function = Callable[[Tensor], tuple[Tensor, Any]]  # theta [D] -> (value, auxiliary value)
Step = Callable[[Any, Any, Any], Any]  # (state, number of the step, whether it is taken) -> the next state


class Stepping(Protocol):
    """How a gradient is taken, a batch is looked up, and which of the steps are a client's own: a lift's business."""

    def differentiate(self, function: Function, theta: Tensor) -> tuple[Tensor, Tensor, Any]:
        """(gradient [D], value, auxiliary value) of a function theta -> (value, auxiliary value)."""
        ...

    def take(self, pool: Any, places: Tensor) -> Any:
        """The samples [B, ...] at these places [B] of the pool."""
        ...

    def loop(self, step: Step, first: Any, count: int | Tensor) -> Any:
        """The state after all steps of a client with so many; the first begins with the state `first`."""
        ...

    def since(self, round: int | Tensor, first: int) -> bool:
        """Whether the number of this round is `first` or more."""
        ...


@dataclass(frozen=True)
class Loop:
    """One client at a time: autograd's own gradient, and as many steps as the client has."""

    def differentiate(self, function: Function, theta: Tensor) -> tuple[Tensor, Tensor, Any]:
        leaf = theta.detach().requires_grad_()
        value, auxiliary = function(leaf)
        (gradient,) = torch.autograd.grad(value, leaf)
        return gradient, value.detach(), auxiliary

    def take(self, pool: Any, places: Tensor) -> Any:
        """The samples [B, ...] at these places [B] of the pool."""
        return _leaves(lambda leaf: leaf.index_select(0, places), pool)

    def loop(self, step: Step, first: Any, count: int | Tensor) -> Any:
        """The state after all steps of a client with so many; the first begins with the state `first`."""
        here = first
        for k in range(int(count)):
            here = step(here, k, True)
        return here

    def since(self, round: int | Tensor, first: int) -> bool:
        """Whether the number of this round is `first` or more."""
        return int(round) >= first


class Begun(NamedTuple):
    """What a recording may ask of the round, whose number it does not know: whether it is one of these, or later."""

    number: int
    asked: set[int]

    @property
    def answers(self) -> frozenset[int]:
        """Those that it is, or is later than: with other answers, another recording is made."""
        return frozenset(first for first in self.asked if self.number >= first)


@dataclass(frozen=True)
class Batched:
    """Many clients in one call: all take `most` steps, those beyond a client's own are masked."""

    most: int
    ragged: bool
    begun: Begun | None = field(default=None, compare=False)  # None where the round is told as a number

    @classmethod
    def of(cls, clients: Sequence[Any]) -> Self:
        """For these clients' numbers of steps."""
        counts = {int(each.steps) for each in clients}
        return cls(max(counts), len(counts) > 1)

    def differentiate(self, function: Function, theta: Tensor) -> tuple[Tensor, Tensor, Any]:
        gradient, (value, auxiliary) = torch.func.grad_and_value(function, has_aux=True)(theta)
        return gradient, value, auxiliary

    def take(self, pool: Any, places: Tensor) -> Any:
        return _leaves(lambda leaf: _lookup(leaf, places), pool)

    def loop(self, step: Step, first: Any, count: int | Tensor) -> Any:
        here = first
        for k in range(self.longest(count)):
            here = step(here, k, self.takes(k, count))
        return here

    def longest(self, count: int | Tensor) -> int:
        """How many steps are computed for clients with so many."""
        return count if isinstance(count, int) else self.most

    def takes(self, k: int | Tensor, count: int | Tensor) -> bool | Tensor:
        """Whether a client with so many steps takes step k."""
        return k < count if self.ragged and not isinstance(count, int) else True

    def since(self, round: int | Tensor, first: int) -> bool:
        """Whether the number of this round is `first` or more."""
        if self.begun is None:
            return int(round) >= first
        self.begun.asked.add(first)
        return self.begun.number >= first


def _leaves(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """`tree_map`, at a tenth of its price for the pair of tensors that most batches are."""
    if isinstance(tree, Tensor):
        return function(tree)
    if type(tree) is tuple:
        return tuple(_leaves(function, part) for part in cast("tuple[Any, ...]", tree))
    return map_tree(function, tree)


def _lookup(leaf: Tensor, places: Tensor) -> Tensor:
    """leaf[places] as rows of a table: under vmap the one way of three that copies rows whole (3 to 5 times faster)."""
    rows = torch.embedding(leaf.reshape(len(leaf), -1), places)
    return rows.reshape(*places.shape, *leaf.shape[1:])
