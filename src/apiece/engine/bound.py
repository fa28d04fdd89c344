"""An algorithm bound to a task, and what follows: how often parameters are synchronised, what a client keeps.

Only what is read is kept in a client's row: a client of FedAvg has an empty row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_structure, tree_unflatten

from apiece.algebra.broadcast import Setting
from apiece.algebra.composition import Algorithm, Period
from apiece.algebra.optim import Freeze, Sgd
from apiece.algebra.periods import NEVER, Schedule, select
from apiece.algebra.piece import Piece
from apiece.algebra.server_optim import Descent
from apiece.engine.descend import Local, Recipe
from apiece.engine.state import Each, Shared, flatten
from apiece.errors import UserError
from apiece.vector.groups import EVERYTHING
from apiece.vector.task import Task


@dataclass(frozen=True)
class Bound:
    """An algorithm on a task: the clients' optimiser, the server's, and how answers are weighted.

    `weighting` is "samples" or "uniform"; `clip` bounds the norm of the task gradient; `optimiser_state` is "fresh"
    each round or "kept"; `watch` names what the simulation looks at ("drift", and "divergence", which keeps every
    client's model); `setting` is what a broadcast's recipe is completed for; `equal_steps` says that all clients who
    answer a round take as many steps in it.
    """

    algorithm: Algorithm
    task: Task
    initial: Tensor
    initial_buffers: Tensor
    client: Any = Sgd()
    server: Any = Descent()
    weighting: str = "samples"
    clip: float | None = None
    optimiser_state: str = "fresh"
    watch: frozenset[str] = frozenset()
    setting: Setting | None = None
    equal_steps: bool = False

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The algorithm's, completed for this task, federation and optimiser of the clients."""
        return tuple(p.complete(self.task.space, self.setting, self.optimiser) for p in self.algorithm.pieces)

    def by_piece(self, each: Iterable[Any]) -> dict[str, Any]:
        """What there is one of a piece, by the name of the piece's type: an algorithm has one of a name."""
        return {type(p).__name__: of for p, of in zip(self.pieces, each, strict=True)}

    @cached_property
    def broadcast(self) -> Any:
        """What the server sends, completed for this task and federation."""
        return self.algorithm.broadcast.complete(self.task.space, self.setting)

    @cached_property
    def periods(self) -> Schedule:
        every = torch.ones(self.task.space.size, device=self.initial.device)
        for period in self.algorithm.periods:
            every = torch.where(self.task.space.select(period.which), torch.clamp(every, min=period.every), every)
        schedule, which = Schedule(every, self.lead), [period.which for period in self.algorithm.periods]
        if bool(schedule.never.all()) and EVERYTHING not in which:
            raise UserError(
                f"under {self.algorithm.name!r} clients would send nothing: all that the model trains, "
                f"{', '.join(e.name for e in self.task.space.parameters)}, is personal; say by a pattern which of "
                "them alone are personal, unfreeze what is to be shared, or take the algorithm local."
            )
        return schedule

    @property
    def lead(self) -> int:
        """How many rounds come before the first whole interval, of one local step each."""
        return int(self.algorithm.phase == "first_step")

    def local_steps(self, planned: int, round: int) -> int:
        """How many of the planned local steps a client takes in this round."""
        return min(planned, 1) if round < self.lead else planned

    @cached_property
    def alike(self) -> tuple[bool, ...]:
        """For each piece, whether its `learn` is given the uniform mean of start - end as `g`, and need not be told it:
        models count alike, no piece moves a start, an end or what is uploaded, and none before it moves `g`.
        """
        plain = self.weighting == "uniform" and not any(p.fills("start", "keep", "upload") for p in self.pieces)
        return tuple(plain and not any(p.fills("learn") for p in self.pieces[:k]) for k in range(len(self.pieces)))

    @cached_property
    def even(self) -> bool:
        """Whether all clients who answer have taken as many steps since `start`, the same for all parameters."""
        return self.equal_steps and not len(self.periods.slow) and self.algorithm.alternate is None

    @cached_property
    def buffer_periods(self) -> Schedule:
        space = self.task.space
        every = torch.ones(space.buffer_size, device=self.initial.device)
        periods = [Period(lambda _: True, NEVER)] if space.policy == "local" else self.algorithm.periods
        for period in periods:
            every = torch.where(space.select_buffers(period.which), torch.clamp(every, min=period.every), every)
        return Schedule(every, self.lead)

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
    def recipe(self) -> Recipe:
        step = None
        for part in self.algorithm.step_sizes:
            scale = torch.ones_like(self.initial) if step is None else step
            step = torch.where(self.task.space.select(part.which), scale * part.factor, scale)
        optimiser, order = self.optimiser, self.algorithm.alternate
        if order is not None:
            optimiser = Freeze(optimiser, self.task.space.select(order.which), order.steps)
        watched = any("gradient" in p.reads for p in self.pieces)
        return Recipe(self.task, optimiser, self.clip, step, watched)

    @property
    def optimiser(self) -> Any:
        """The clients' optimiser, in whatever order it moves the parameters."""
        return self.algorithm.client or self.client

    @property
    def server_optimiser(self) -> Any:
        return self.algorithm.server or self.broadcast.optimiser or self.server

    @cached_property
    def templates(self) -> dict[str, Any]:
        """The trees that rows are flattened from, and what clients are told at first."""
        memory = self.by_piece(p.client_memory(self.initial) for p in self.pieces)
        told = self.by_piece(p.tell(p.server_memory(self.initial)) for p in self.pieces)
        return {"memory": memory, "optimiser": self.recipe.optimiser.init(self.initial), "told": told}

    @cached_property
    def step_groups(self) -> tuple[Tensor, Tensor]:
        """Steps are counted once a group: (where each group's first slow parameter is, which group each slow one
        has).
        """
        group = self.periods.group[self.periods.slow]
        keys, index = torch.unique(group, return_inverse=True)
        first = torch.stack([(group == key).nonzero()[0, 0] for key in keys]) if len(keys) else index.new_zeros(0)
        return first, index

    def weight(self, samples: int) -> float:
        """How much a client with so many training samples counts in the mean of the models."""
        return float(samples) if self.weighting == "samples" else 1.0

    # --- a client's row ----------------------------------------------------------------------------------------------
    def fresh_row(self) -> dict[str, Tensor]:
        """The row of a client that never trained. Only what is read is there: a client of FedAvg has an empty one."""
        theta, slow, zero = self.initial, self.periods.slow, torch.zeros_like(self.initial)
        row = {}
        if len(self.kept):
            row["model"] = theta[self.kept]
        if len(slow):
            row |= {"sent": theta[slow], "steps": theta.new_zeros(len(self.step_groups[0]))}
            if any(p.fills("start") for p in self.pieces):
                row["start"] = theta[slow]
            if self.recipe.gradient:
                row["total"] = zero[slow]
            told = flatten("told", self.templates["told"]).items()
            row |= {name: leaf[slow] for name, leaf in told if leaf.shape == theta.shape}
        if len(self.buffer_periods.own):
            row["buffers"] = self.initial_buffers[self.buffer_periods.own]
            row["buffers_sent"] = self.initial_buffers[self.buffer_periods.slow]
        if any("fresh" in p.reads for p in self.pieces):
            row["touched"] = theta.new_zeros(0)  # a row of any kind says that its client was here
        row |= flatten("memory", self.templates["memory"])
        if self.optimiser_state == "kept":
            row |= flatten("optimiser", self.recipe.optimiser.init(theta))
        return {name: leaf.clone() for name, leaf in row.items()}

    def own_model(self, sent: Tensor, row: dict[str, Tensor], seen: Any) -> Tensor:
        """The client's model as it last kept it, [D]: what is not kept is as it was sent."""
        if len(self.kept) == self.task.space.size:
            return row["model"]
        return sent.index_copy(0, self.kept, row["model"]) if len(self.kept) else sent

    def personal_model(self, theta: Tensor, buffers: Tensor, each: Each) -> tuple[Tensor, Tensor]:
        """The global model with the client's own personal parameters and buffers; as it is for a client never seen."""
        if each.seen < 0:
            return theta, buffers
        own = self.own_model(theta, each.row, each.seen)
        mine = own if self.keeps_personal else torch.where(self.periods.never, own, theta)
        if self.buffer_periods.personal:
            kept = buffers.index_copy(0, self.buffer_periods.own, each.row["buffers"])
            buffers = torch.where(self.buffer_periods.never, kept, buffers)
        return mine, buffers

    def _recall(self, base: Tensor, row: dict[str, Tensor], *names: str) -> Tensor:
        """`base` with its slow entries from the first of these that the row has."""
        for name in names:
            if name in row:
                return base.index_copy(0, self.periods.slow, row[name])
        return base

    def _told(self, arrived: dict[str, Any], row: dict[str, Tensor], opens: Any) -> dict[str, Any]:
        """What pieces are told: of groups that did not open, vectors over parameters as they were when these did."""
        if opens is True:
            return arrived
        named = flatten("told", arrived)
        return tree_unflatten(
            [select(opens, leaf, self._recall(leaf, row, name)) for name, leaf in named.items()],
            tree_structure(arrived),
        )

    def _steps(self, row: dict[str, Tensor], opens: Any) -> Tensor:
        if "steps" not in row:
            return self.initial.new_zeros(())
        before = torch.zeros_like(self.initial).index_copy(0, self.periods.slow, row["steps"][self.step_groups[1]])
        return torch.where(opens, 0.0, before)

    def _buffers(self, shared: Shared, each: Each) -> tuple[Tensor, Tensor]:
        """(the buffers as sent, the buffers to begin with): the client's own where no synchronisation came."""
        periods, arrived = self.buffer_periods, shared.buffers
        if "buffers" not in each.row:
            return arrived, arrived
        opens = periods.opens(shared.round, each.seen)
        sent = torch.where(opens, arrived, arrived.index_copy(0, periods.slow, each.row["buffers_sent"]))
        own = arrived.index_copy(0, periods.own, each.row["buffers"])
        return sent, torch.where(opens & periods.shared, sent, own)

    def _row(
        self,
        each: Each,
        sent: Tensor,
        start: Tensor,
        kept: Tensor,
        last: Local,
        buffers_sent: Tensor,
        memory: dict[str, Any],
        told: dict[str, Any],
    ) -> dict:
        slow, new = self.periods.slow, {}
        vectors = {
            "model": (kept, self.kept),
            "sent": (sent, slow),
            "start": (start, slow),
            "total": (last.total, slow),
        } | {name: (leaf, slow) for name, leaf in flatten("told", told).items()}
        for name, (vector, where) in vectors.items():
            if name in each.row:
                new[name] = vector[where]
        if "touched" in each.row:
            new["touched"] = each.row["touched"]
        if "steps" in each.row:
            new["steps"] = last.steps[slow][self.step_groups[0]]
        if "buffers" in each.row:
            new |= {
                "buffers": last.buffers[self.buffer_periods.own],
                "buffers_sent": buffers_sent[self.buffer_periods.slow],
            }
        new |= flatten("memory", memory)
        return new | (flatten("optimiser", last.optimiser) if self.optimiser_state == "kept" else {})
