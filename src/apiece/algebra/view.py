"""What a piece may know of one client in one round: the View, with the functions that it offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor

from apiece.algebra.message import Message
from apiece.algebra.optim import Optimizer, Rate
from apiece.data.samples import Samples
from apiece.errors import UserError
from apiece.vector.task import TaskView

Loss = Callable[[Tensor, Any], Tensor]  # (theta [D], batch) -> scalar
Rule = Callable[[Any, Tensor, Tensor, Any], tuple[Any, Tensor]]  # (scratch, g [D], theta [D], batch) -> (scratch, g)
Predict = Callable[[Any], Tensor]  # x -> scores
Batches = Sequence[Tensor] | Tensor  # the rows of each local step's batch: [K, B], or K tensors of other lengths


class Descend(Protocol):
    """The engine's own local training, for a piece that trains once more: where it begins -> where it ends, [D].

    What is not given is the round's: its loss, batches, optimizer and step size, and no correction.
    """

    def __call__(
        self,
        start: Tensor,
        objective: Loss | None = None,
        batches: Batches | None = None,
        optimizer: Optimizer | None = None,
        lr: Rate | None = None,
        correct: Rule | None = None,
    ) -> Tensor: ...


class Repeat(Protocol):
    """The state after `times` steps of state <- step(state) from `first`: a tensor, or a tuple of tensors.

    A loop of Python computes the same. Where calls are compiled, this one's step is compiled once.
    """

    def __call__(self, step: Callable[[Any], Any], first: Any, times: int) -> Any: ...


class View(NamedTuple):
    """What a piece may know of one client in one round, and nothing else. Vectors are [D].

    >>> from dataclasses import dataclass
    >>> from apiece import Piece, algorithm, federate
    >>> @dataclass(frozen=True)
    ... class Halfway(Piece):
    ...     '''The client keeps the middle of where it began and where it ended.'''
    ...     def keep(self, view: View, theta):
    ...         return (view.start + theta) / 2
    >>> halfway = algorithm(Halfway(), name="halfway")
    >>> len(federate("softmax_regression", "digits", halfway, clients=5, rounds=2, steps=5).metrics)
    2
    """

    sent: Tensor  # the model that the server sent
    model: Tensor  # the client's own model as it last kept it; where it never trained, the initial model
    start: Tensor  # where the current interval of training began
    end: Tensor  # where training is now
    steps: Tensor  # local steps taken since `start`: [], or [D] where groups differ
    gradient: Tensor  # mean gradient of the objective since `start`, clipped, uncorrected; empty unless `reads` has it
    shared: Tensor  # which parameters are ever synchronized, bool
    lr: Rate  # the local step size of this round: a number, or [D]
    round: int | Tensor  # the number of rounds before this one
    fresh: Tensor  # whether the client takes part for the first time, bool []
    who: int | Tensor  # the client's number
    data: Samples  # the client's training samples
    planned: Tensor  # how many local steps the client takes in this round, []
    batches: Batches  # of every local step; where clients are stacked, padded to the longest: `planned` counts them
    task: TaskView  # the model and the loss as functions of vectors
    descend: Descend
    step: Callable[[], int | Tensor]  # the number of the local step being taken, 0, 1, ..., for an objective to call
    repeat: Repeat
    since: Callable[[int], bool]  # whether `round` is this or more, to decide by: recorded calls know no more of it
    equal_steps: bool = False  # whether all clients who answer have taken as many steps of one size since `start`
    # and what is this piece's own:
    draws: Mapping[str, Tensor] = {}  # what it declared to be drawn
    server: Any = ()  # what its server memory tells its clients
    client: Any = ()  # its memory on this client
    scratch: Any = ()  # what it carried from step to step
    message: Message | tuple[()] = ()  # what left the client; () before the slot `remember`
    mean_is_uniform: bool = False  # whether its `learn` is given the clients' uniform mean of start - end as `g`

    def with_own(self, theta: Tensor) -> Tensor:
        """`theta` with the client's own values of the parameters that are never synchronized, which every run keeps:
        [D]. A piece need not declare that it reads these.
        """
        return torch.where(self.shared, theta, cast("Tensor", self[OWN]))


OWN = View._fields.index("model")
PAST = ("model", "gradient", "fresh")  # what is kept of a client's past if a piece `reads` it


@cache
def hiding(piece: str, read: frozenset[str]) -> type[View]:
    """The view of a piece of this name that has declared so much of the past: it raises UserError for the rest, of
    which nothing may be kept.
    """

    def refused(name: str) -> property:
        def refuse(view: View) -> Tensor:
            raise UserError(
                f"{piece} reads view.{name} and does not say so: give the class the line "
                f"`reads = frozenset({{{name!r}}})`, with all that it reads of {', '.join(PAST)}."
            )

        return property(refuse)

    return type("View", (View,), {"__slots__": ()} | {name: refused(name) for name in PAST if name not in read})
