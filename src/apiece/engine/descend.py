"""The local loop: the only one there is. Order inside a step: clip(task gradient), corrections, optimizer, step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from apiece.algebra.optim import Optimizer, Rate, clip
from apiece.algebra.periods import select
from apiece.algebra.view import Loss, Rule
from apiece.engine.stepping import Stepping
from apiece.system.numbered import Number
from apiece.vector.task import Passes, Task


class Local(NamedTuple):
    """Where a descent stands."""

    theta: Tensor
    buffers: Tensor
    optimizer: Any
    scratch: tuple[Any, ...]
    steps: Tensor  # since the interval's start; [] or [D]
    total: Any  # the sum of task gradients since then, or () where nobody reads it
    loss: Tensor  # the sum of the objective's values


class Recipe(NamedTuple):
    """How a client descends: the optimizer, the clip's norm, a factor of the step size [D], whether gradients are
    summed.
    """

    task: Task
    optimizer: Optimizer
    clip: float | None
    scale: Tensor | None
    gradient: bool

    def begin(
        self, theta: Tensor, buffers: Tensor, scratch: tuple[Any, ...], steps: Tensor | None = None, total: Any = ()
    ) -> Local:
        """The state before the first step."""
        zero = theta.new_zeros(())
        return Local(theta, buffers, self.optimizer.init(theta), scratch, zero if steps is None else steps, total, zero)


def descend(
    stepping: Stepping,
    recipe: Recipe,
    passes: Passes,
    objective: Loss,
    rules: Sequence[tuple[int, Rule]],
    first: Local,
    feed: Callable[[Any], Any],
    steps: int | Tensor,
    lr: Rate,
) -> Local:
    """Take the local steps: `feed(k)` is the k-th batch, `rules` are (piece's number, its correction).

    `stepping` says how a gradient is taken and which of the steps are this client's (a lift's business).
    """
    moves = getattr(recipe.optimizer, "moves", None)

    def step(here: Local, k: Any, active: Any) -> Local:
        batch, number = feed(k), k.value if isinstance(k, Number) else k
        passes.buffers, passes.step = here.buffers, number
        if passes.keys is not None:
            passes.stream.key = passes.keys(k)
        g, loss, buffers = stepping.differentiate(passes.with_buffers(objective, batch), here.theta)
        if recipe.clip is not None:
            g = clip(g, recipe.clip)
        mask = True if moves is None else moves(number, steps)
        total, count = here.total, here.steps + 1
        if recipe.gradient:
            total = select(mask, total + g, total)
        scratch = list(here.scratch)
        for place, rule in rules:
            scratch[place], g = rule(scratch[place], g, here.theta, batch)
        theta, optimizer = recipe.optimizer.step(g, here.theta, here.optimizer, lr)
        if mask is not True:
            theta, optimizer = select(mask, (theta, optimizer), (here.theta, here.optimizer))
            count = here.steps + mask.to(here.steps.dtype)
        return select(active, Local(theta, buffers, optimizer, tuple(scratch), count, total, here.loss + loss), here)

    key = passes.stream.key  # of the round, or of another descent's step that this one is a part of
    last = stepping.loop(step, first, steps)
    passes.stream.key = key
    return last
