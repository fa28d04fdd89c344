"""How far clients drift apart, computed from the sums that a round's answers carry. No client's model is read.

Over the n clients that answered, with d_i = sent - kept_i, d the mean of the d_i, and s = sent - next, where `next` is
the server's vector after the round:

    divergence over the selected   mean_i ||kept_i - next||^2      = mean_i ||d_i||^2 - 2 <d, s> + ||s||^2
    consensus distance of a layer  mean_i ||kept_i - mean kept||^2 = mean_i ||d_i||^2 - ||d||^2

The first is FedInit's (Table 10), the second FedALS's (Figure 1). Over all N clients the same follows from running sums
of u_i = kept_i - initial; u_i is zero for a client that never trained. Personal parameters differ by design, so
they are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from apiece.algebra.place import Answer
from apiece.engine.setup import Setup
from apiece.system.device import to_host

DIVERGED = 100.0  # a mean cross entropy far above guessing: guessing among a million classes costs 14
GREW = 10.0  # for another loss: times the first round's loss


class Running(NamedTuple):
    """Sums over all registered clients: of u_i [D] and of ||u_i||^2, float64."""

    offset: Tensor
    square: Tensor

    @classmethod
    def zero(cls, like: Tensor) -> Running:
        """The sums before the first round, for vectors like this one."""
        return cls(torch.zeros_like(like, dtype=torch.float64), like.new_zeros((), dtype=torch.float64))

    def plus(self, watched: Any) -> Running:
        """The sums after a round whose answers moved these clients."""
        return Running(self.offset + watched["moved"].x.double(), self.square + watched["grown"].x.double())

    def divergence(self, following: Tensor, initial: Tensor, registered: int) -> float:
        """mean over all clients of ||kept_i - next||^2."""
        u = (following - initial).double()
        mean = self.square / registered - 2 * (self.offset / registered) @ u + u @ u
        return max(float(mean), 0.0)  # where all clients equal the model, only rounding is left

    def after(self, setup: Setup, params: Tensor, answer: Answer, registered: int) -> tuple[Running, dict[str, float]]:
        """The sums after a round that led the server to `params` [D]; and by name the divergence over all clients.

        If the round was not watched, the sums stay and there is no divergence.
        """
        if "moved" not in answer.diagnostics:
            return self, {}
        sums, initial = self.plus(answer.diagnostics), setup.initial
        following = torch.where(setup.periods.shared, params, initial)
        return sums, {"divergence_all": sums.divergence(following, initial, registered)}


def work_of(watched: Any) -> dict[str, float]:
    """A round's training loss (mean over steps), its local steps, and how many of these steps reached the server."""
    if "steps" not in watched:
        return {}
    steps = float(watched["steps"].x)
    loss = float(watched["loss"].x) / max(steps, 1.0)
    return {"train_loss": loss, "steps": int(steps), "steps_counted": float(watched["reached"].x)}


def of_round(setup: Setup, before: Tensor, after: Tensor, answer: Answer) -> dict[str, Any]:
    """The drift of one round by name, if it was watched; the server had the vectors `before` and `after` it [D].

    If clients are sent models of their own, there is no divergence, as there is no common model to measure it from.
    """
    watched, answered = answer.diagnostics, len(answer.answered)
    if "offset" not in watched:
        return {}
    shared, space = setup.periods.shared, setup.task.space
    mean = watched["offset"].x.double() / answered
    squares = watched["squares"].x.double() / answered
    by_layer = mean.new_zeros(len(space.layers))
    consensus = (squares - by_layer.index_add(0, setup.layer_index, mean * mean)).clamp(min=0)
    present = by_layer.index_add(0, setup.layer_index, shared.double()) > 0
    norm = float(watched["norm"].x) / answered
    variance = float(watched["norm_squared"].x) / answered - norm * norm
    divergence = {}
    if setup.broadcast.common:
        move = torch.where(shared, before - after, 0.0).double()
        divergence["divergence_selected"] = max(float(squares.sum() - 2 * mean @ move + move @ move), 0.0)
    distances = zip(space.layers, *to_host((consensus, present)), strict=True)
    return divergence | {
        "consensus": {name: float(value) for name, value, there in distances if there},
        "update_norm_mean": norm,
        "update_norm_std": max(variance, 0.0) ** 0.5,
    }


def dissimilarity(gradients: Iterable[Tensor]) -> float | None:
    """mean ||g_i||^2 / ||mean g_i||^2 of the clients' gradients at the server's model: 1 where clients agree. None if
    there is no gradient. One gradient is held at a time.
    """
    total, squares, count = None, 0.0, 0
    for gradient in gradients:
        g = gradient.double()
        squares, count = squares + float(g @ g), count + 1
        total = g.clone() if total is None else total.add_(g)
    return None if total is None else count * squares / max(float(total @ total), 1e-30)


def diverged(metrics: Sequence[Mapping[str, Any]], usual: bool) -> str:
    """A warning for a run whose training loss ended higher than that of any run that learns; "" for other runs.
    `usual`: the loss is cross entropy.
    """
    losses = [info["train_loss"] for info in metrics if "train_loss" in info]
    if not losses or losses[-1] <= (DIVERGED if usual else GREW * abs(losses[0])):
        return ""
    than = "far more than guessing costs" if usual else f"and was {losses[0]:.3g} in the first"
    return f"the training loss is {losses[-1]:.3g} in the last round, {than}: lower --lr, or take --clip 10."
