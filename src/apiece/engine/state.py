"""What the engine passes around: all of it named tuples of tensors, and nothing that behaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from apiece.algebra.view import Batches
from apiece.data.samples import Samples
from apiece.engine.row import Row
from apiece.storage.trees import flatten
from apiece.system.device import Crossing, crossing


class Server(NamedTuple):
    """All that the server keeps between rounds."""

    round: int
    params: Tensor
    buffers: Tensor
    optimizer: Any
    memory: dict[str, Any]  # what each piece remembers, by the name of its type
    broadcast: Any = ()  # what the broadcast remembers

    def __repr__(self) -> str:
        kept = ", ".join(flatten("memory", self.memory)) or "nothing"
        return f"Server(round={self.round}, parameters={self.params.numel()}, remembers {kept})"


class ClientTask(NamedTuple):
    """What one client works on in a round: what it was sent, its row, its samples, and what was drawn for it.

    Where clients are stacked, numbers are tensors [].
    """

    sent: Tensor | tuple[()]  # its own model [D], or () where all are sent the same
    who: int
    last_round: int  # the last round of this client that was counted, -1 for none
    row: Row
    samples: Samples
    batches: Batches  # rows of the samples, for each local step
    steps: int
    augment: Any  # what augmentation drew
    draws: tuple[Mapping[str, Tensor], ...]  # of each piece
    weight: float
    described: Tensor | tuple[()] = ()  # rows [B] of the samples that were drawn for a descriptor
    key: Tensor | tuple[()] = ()  # of the stream that the model draws from as it trains, int64 [2]
    lr: Tensor | tuple[()] = ()  # its own step size, of which the round's is a factor, float64 []; () without one


class Reply(NamedTuple):
    """What an operation gives back: what leaves the client, its new row, and what only a simulation can look at."""

    message: Any  # a Message, or a marked report
    row: Row | tuple[()]  # () where the operation makes none
    diagnostics: dict[str, Any]
    finite: Tensor | bool

    def crossing(self, device: torch.device) -> Crossing:
        """The same, with what the host will read of it on its way there from the device: weight, row, and whether it
        is finite.
        """
        if device.type == "cpu":
            return Crossing(self)
        begun = crossing((getattr(self.message, "weight", None), self.row, self.finite))
        weight, row, finite = begun.thing
        message = self.message if weight is None else self.message._replace(weight=weight)
        return Crossing(self._replace(message=message, row=row, finite=finite), begun.events)


class Plan(NamedTuple):
    """What the edge decided for one round.

    Args:
        cohort: the numbers of the clients that are asked.
        absent: those of them that do not answer.
        lr: the clients' step size.

    >>> Plan(cohort=[0, 3, 4], absent=frozenset({3}), lr=0.1).cohort
    [0, 3, 4]
    """

    cohort: list[int]
    absent: frozenset[int]
    lr: float


def finite(*trees: Any) -> Tensor:
    """Whether every real number in these trees is finite: told by their sum, in a fortieth of the time of looking at
    each.
    """
    return torch.isfinite(torch.as_tensor(sum(leaf.sum() for leaf in _real(trees))))


def _real(tree: Any) -> Iterator[Tensor]:
    """The tensors of real numbers in tuples, lists and dicts, at a fifth of the price of `tree_leaves`."""
    if isinstance(tree, Tensor):
        if tree.is_floating_point():
            yield tree
    elif isinstance(tree, tuple | list | dict):
        for part in cast("Iterable[Any]", tree.values() if isinstance(tree, dict) else tree):
            yield from _real(part)
