"""An algorithm on a task, and what follows from both: periods, the local optimizer, what a client keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from apiece.algebra.broadcast import Broadcast, FederationFacts
from apiece.algebra.composition import Algorithm, Period
from apiece.algebra.optim import Freeze, Moving, Optimizer, Rate, Sgd
from apiece.algebra.periods import NEVER, Mask, Schedule
from apiece.algebra.piece import Piece
from apiece.algebra.server_optim import Descent
from apiece.engine.descend import Recipe
from apiece.errors import UserError, refuse_other, tried
from apiece.system.typed import distinct
from apiece.vector.groups import EVERYTHING, Selector
from apiece.vector.task import Task

Of = TypeVar("Of")


class Templates(NamedTuple):
    """The trees whose leaves are kept by name, as they are at first."""

    memory: dict[str, Any]  # of each piece on a client
    optimizer: Any  # the state of a client's optimizer
    from_server: dict[str, Any]  # what each piece tells clients of the server's memory


@dataclass(frozen=True, repr=False)
class Setup:
    """An algorithm on a task: the clients' optimizer, the server's, and how answers are weighted.

    `weighting` is "samples", "uniform", or a function of a client's number of samples; `clip` bounds the norm of the
    task gradient; `optimizer_state` is "fresh" each round or "kept"; `watch` names what the simulation looks at
    ("drift", and "divergence", which keeps every client's model); `setting` is what a broadcast's recipe is completed
    for; `equal_work` says that all clients who answer a round take as many steps of the same size in it; `lr_by_client`
    gives a client's own step size by name, of which the round's is then a factor.

    Args:
        algorithm: what runs.
        task: the model, its loss and metrics.
        initial: the initial model [D].
        initial_buffers: the statistics of normalization at first [B].
        client: the clients' optimizer, where the algorithm has none.
        server: the server's, likewise.

    >>> import torch
    >>> from apiece import Federated, Space, algorithm
    >>> space = Space(torch.nn.Linear(2, 2))
    >>> setup = Setup(algorithm(name="fedavg"), Task(space), space.ravel(), space.ravel_buffers(), clip=10.0)
    >>> Federated(setup).start().params.shape
    torch.Size([6])
    """

    algorithm: Algorithm
    task: Task
    initial: Tensor
    initial_buffers: Tensor
    client: Optimizer = Sgd()
    server: Optimizer = Descent()
    weighting: str | Callable[[int], float] = "samples"
    clip: float | None = None
    optimizer_state: str = "fresh"
    watch: frozenset[str] = frozenset()
    setting: FederationFacts | None = None
    equal_work: bool = False
    lr_by_client: Callable[[str], float] | None = None

    def __post_init__(self) -> None:
        refuse_other("optimizer_state", self.optimizer_state, "fresh", "kept")
        if not callable(self.weighting):
            refuse_other("weighting", self.weighting, "samples", "uniform")
        for name in self.watch:
            refuse_other("watch", name, "drift", "divergence")

    def __repr__(self) -> str:
        return f"Setup({self.algorithm.name!r}, parameters={self.task.space.size}, weighting={self.weighting!r})"

    # --- the algorithm's parts, made whole for this task -------------------------------------------------------------
    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The algorithm's, completed for this task, federation and optimizer of the clients."""
        return tuple(p.complete(self.task.space, self.setting, self.optimizer) for p in self.algorithm.pieces)

    @property
    def own_pieces(self) -> list[Piece]:
        """Those that are a program's, and none of ours."""
        return [p for p in self.pieces if not type(p).__module__.startswith("apiece.")]

    def suspects(self, *slots: str) -> str:
        """Which of these slots somebody's own pieces fill, as the end of a sentence on what is not finite."""
        filled = [f"{p.stream}.{slot}" for p in self.own_pieces for slot in slots if p.fills(slot)]
        return f", or {' or '.join(filled)} returned what is not finite" if filled else ""

    def by_piece(self, each: Iterable[Of]) -> dict[str, Of]:
        """What there is one of a piece, by the name of the piece: an algorithm has one of a name."""
        return {p.stream: of for p, of in zip(self.pieces, each, strict=True)}

    @property
    def ways(self) -> list[str]:
        """The names of what a client predicts with: with every piece (""), and without those that bear a name."""
        return sorted({"", *(p.without for p in self.pieces)})

    @cached_property
    def broadcast(self) -> Broadcast:
        """What the server sends, completed for this task and federation."""
        return self.algorithm.broadcast.complete(self.task.space, self.setting)

    @property
    def optimizer(self) -> Optimizer:
        """The clients' optimizer, in whatever order it moves the parameters."""
        return self.algorithm.client or self.client

    def doubts(self, share: float) -> list[str]:
        """Why each piece may fail where a round asks this share of the clients, "" where it does not say.

        Pieces know of a server's vector alone: nothing is said where there is none that all clients train.
        """
        if not self.broadcast.common or bool(self.periods.never.all()):
            return []
        return [piece.doubt(share, self.server_optimizer) for piece in self.pieces]

    @property
    def server_optimizer(self) -> Optimizer:
        return self.algorithm.server or self.broadcast.optimizer or self.server

    @cached_property
    def recipe(self) -> Recipe:
        """How a client descends."""
        step = None
        for part in self.algorithm.step_sizes:
            scale = torch.ones_like(self.initial) if step is None else step
            step = torch.where(self.task.space.select(part.which), scale * part.factor, scale)
        optimizer, order = self.optimizer, self.algorithm.alternate
        if order is not None:
            optimizer = Freeze(optimizer, self.task.space.select(order.which), order.steps)
        return Recipe(self.task, optimizer, self.clip, step, any("gradient" in p.reads for p in self.pieces))

    def recipe_of(self, closes: Mask) -> Recipe:
        """How a client descends in a round that synchronizes these parameters: what takes turns rests in others."""
        if self.in_turn is None or closes is True:
            return self.recipe
        return self.recipe._replace(optimizer=Moving(self.recipe.optimizer, closes | ~self.in_turn))

    @cached_property
    def in_turn(self) -> Tensor | None:
        """Which parameters move only in rounds that synchronize them, bool [D]; None where all move in every round."""
        chosen = [self.task.space.select(part.which) for part in self.algorithm.in_turn]
        return torch.stack(chosen).any(0) & self.periods.shared if chosen else None

    @cached_property
    def keeps_optimizer(self) -> bool:
        """Whether clients keep their optimizer's state from round to round."""
        return self.optimizer_state == "kept" or any(p.keeps_optimizer for p in self.algorithm.pieces)

    def lr_of(self, name: str) -> Tensor | tuple[()]:
        """A client's own step size, float64 []; () where clients have none."""
        if self.lr_by_client is None:
            return ()
        return torch.tensor(self.lr_by_client(name), dtype=torch.float64)

    def lr_in(self, lr: float, name: str) -> float:
        """The step size of this client in a round with this one."""
        return float(lr) if self.lr_by_client is None else float(lr) * self.lr_by_client(name)

    def step_size(self, lr: Rate) -> Rate:
        """The local step size: a number, or [D] where parameters have their own."""
        return lr if self.recipe.scale is None else lr * self.recipe.scale

    @cached_property
    def templates(self) -> Templates:
        return Templates(
            self.by_piece(p.client_memory(self.initial) for p in self.pieces),
            self.recipe.optimizer.init(self.initial),
            self.by_piece(p.tell(p.server_memory(self.initial)) for p in self.pieces),
        )

    # --- how often what is synchronized ------------------------------------------------------------------------------
    @cached_property
    def periods(self) -> Schedule:
        """Of the parameters."""
        space = self.task.space
        schedule = self._schedule(space.size, space.select, self.algorithm.periods)
        if bool(schedule.never.all()) and EVERYTHING not in [period.which for period in self.algorithm.periods]:
            raise UserError(
                f"under {self.algorithm.name!r} clients would send nothing: all that the model trains, "
                f"{', '.join(e.name for e in self.task.space.parameters)}, is personal; say by a pattern which of "
                "them alone are personal, unfreeze what is to be shared, or take the algorithm local."
            )
        return schedule

    @cached_property
    def buffer_periods(self) -> Schedule:
        """Of the buffers: those of their layers."""
        space = self.task.space
        periods = [Period(lambda _: True, NEVER)] if space.policy == "local" else self.algorithm.periods
        return self._schedule(space.buffer_size, space.select_buffers, periods)

    def _schedule(self, size: int, select: Callable[[Selector], Tensor], periods: Iterable[Period]) -> Schedule:
        """Of several periods for a parameter the longest holds, and of equally long ones the largest offset."""
        # one number seen as a vector: parameters that are all alike take no memory
        every, offset = (torch.full((1,), of, device=self.initial.device).expand(size) for of in (1.0, 0.0))
        for period in periods:
            span = float(period.every)
            longer = select(period.which) & ((every < span) | ((every == span) & (offset < period.late)))
            every, offset = torch.where(longer, span, every), torch.where(longer, period.late, offset)
        return Schedule(every, self.lead, offset)

    @property
    def lead(self) -> int:
        """How many rounds come before the first whole interval, of one local step each."""
        return int(self.algorithm.phase == "first_step")

    def local_steps(self, planned: int, round: int) -> int:
        """How many of the planned local steps a client takes in this round."""
        return min(planned, 1) if round < self.lead else planned

    # --- what answers are --------------------------------------------------------------------------------------------
    @cached_property
    def mean_is_uniform(self) -> tuple[bool, ...]:
        """For each piece, whether its `learn` is given the uniform mean of start - end as `g`, and need not be told it:
        models count the same, no piece moves a start, an end or what is uploaded, and none before it moves `g`.
        """
        plain = self.weighting == "uniform" and not any(p.fills("start", "keep", "upload") for p in self.pieces)
        return tuple(plain and not any(p.fills("learn") for p in self.pieces[:k]) for k in range(len(self.pieces)))

    @cached_property
    def equal_steps(self) -> bool:
        """Whether all clients who answer have taken as many steps of one size since `start`, for all parameters."""
        return self.equal_work and not len(self.periods.slow) and self.algorithm.alternate is None

    def weight(self, samples: int) -> float:
        """How much a client with so many training samples counts in the mean of the models; UserError where a function
        that says so gives no weight.
        """
        if callable(self.weighting):
            return _weighed(self.weighting, samples) if samples else 0.0
        return float(samples) if self.weighting == "samples" else 1.0

    # --- what a client keeps -----------------------------------------------------------------------------------------
    @cached_property
    def kept(self) -> Tensor:
        """Which entries of a client's own model are kept between rounds: all where a piece reads it. int64 [<= D]."""
        reads = any("model" in p.reads for p in self.pieces) or "divergence" in self.watch
        return torch.arange(self.task.space.size, device=self.initial.device) if reads else self.periods.own

    @cached_property
    def keeps_personal(self) -> bool:
        """Whether what is kept of a client's own model is its personal parameters and nothing else."""
        return len(self.kept) == int(self.periods.never.sum())

    @cached_property
    def step_groups(self) -> tuple[Tensor, Tensor]:
        """Steps are counted once for all parameters that take the same: (where the first slow one of each group is,
        which group each slow one has).
        """
        group = self.periods.group
        for apart in (self.in_turn, getattr(self.recipe.optimizer, "first", None)):  # these take other steps
            group = group if apart is None else 2 * group + apart
        group = group[self.periods.slow]
        keys, index = distinct(group)
        first = torch.stack([(group == key).nonzero()[0, 0] for key in keys]) if len(keys) else index.new_zeros(0)
        return first, index

    @cached_property
    def layer_index(self) -> Tensor:
        """For every parameter, the number of its group of layers. int64 [D]."""
        return self.task.space.layer_index()


def _weighed(weighting: Callable[[int], float], samples: int) -> float:
    """The weight that a program's function gives; raises UserError for what is none."""
    who = f"a client with {samples} training samples"
    with tried(f"weighting has no weight for {who}"):
        weight = float(weighting(samples))
    if not 0 <= weight < inf:
        raise UserError(f"weighting gives {weight:g} for {who}: it must give a finite number, 0 or more.")
    return weight
