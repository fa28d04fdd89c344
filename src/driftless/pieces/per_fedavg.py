"""Per-FedAvg: the model is trained to be good after one step of a client's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from driftless.errors import UserError
from driftless.piece import Loss, Piece, View


def part(batch: Any, place: int, of: int) -> Any:
    """One of several equal parts of a batch, in order; none is without a sample, so those of a small batch overlap."""
    size = len(tree_leaves(batch)[0])
    begin = min(place * size // of, size - 1)
    return tree_map(lambda leaf: leaf[begin : max((place + 1) * size // of, begin + 1)], batch)


@dataclass(frozen=True)
class FirstOrder:
    """The gradient after the inner step: v = g(theta - alpha g(theta; B1); B2), the halves of a batch."""

    parts = 2

    def correct(self, view: View, alpha: float) -> Any:
        return None


@dataclass(frozen=True)
class HessianFree:
    """v - alpha (g(theta + delta v; B3) - g(theta - delta v; B3)) / (2 delta), the thirds of a batch."""

    delta: float = 1e-3
    parts = 3

    def __post_init__(self) -> None:
        if self.delta <= 0:
            raise UserError(f"per_fedavg(delta={self.delta:g}) divides by delta: give more than 0.")

    def correct(self, view: View, alpha: float) -> Any:
        def rule(scratch: Any, v: Tensor, theta: Tensor, batch: Any):
            third = part(batch, 2, self.parts)
            ahead, behind = (view.task.gradient(theta + side * v, third) for side in (self.delta, -self.delta))
            return scratch, v - alpha * (ahead - behind) / (2 * self.delta)

        return (), rule


@dataclass(frozen=True)
class MetaStep(Piece):
    """theta <- theta - lr v of the variant, after the inner step theta' = theta - alpha g(theta; B1), itself constant.

    Fallah et al., "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning
    Approach", NeurIPS 2020, Algorithm 1, and its experiments for the variants FO and HF. The inner step has no
    momentum; v is taken after the clip. alpha of 0.01 is ours; PeFLL's comparison is of first order (A.2). Stored:
    nothing. Sent: theta. Every client, seen or not, adapts the global model to its training data before it predicts: by
    `FineTune` beside this piece.
    """

    alpha: float = 0.01
    variant: Any = FirstOrder()

    def __post_init__(self) -> None:
        if self.alpha < 0:
            raise UserError(f"per_fedavg(alpha={self.alpha:g}) would climb in its inner step: give 0 or more.")

    @classmethod
    def neutral(cls):
        return "at alpha 0 it is FedAvg on the second part of every batch"

    def objective(self, view: View, loss: Loss):
        def after(theta: Tensor, batch: Any) -> Tensor:
            inner = view.task.gradient(theta.detach(), part(batch, 0, self.variant.parts)).detach()
            return loss(theta - self.alpha * inner, part(batch, 1, self.variant.parts))

        return after

    def correct(self, view: View):
        return self.variant.correct(view, self.alpha)
