"""Per-FedAvg: training seeks a model that is good after one local step of a client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from apiece.algebra.composition import Algorithm, algorithm, changed
from apiece.algebra.optim import Sgd
from apiece.algebra.papers import paper
from apiece.algebra.piece import Piece
from apiece.algebra.view import Loss, View
from apiece.errors import UserError
from apiece.pieces.fine_tune import ORDER, FineTune, drawn_batches
from apiece.vector.space import Space


def part(batch: Any, place: int, of: int) -> Any:
    """Part `place` of `of` equal parts of a batch, in order; none is empty, so those of a small batch overlap."""
    size = len(tree_leaves(batch)[0])
    begin = min(place * size // of, size - 1)
    return tree_map(lambda leaf: leaf[begin : max((place + 1) * size // of, begin + 1)], batch)


def parts(view: View, of: int) -> Any:
    """(the step's batch, 0, 1 or 2) -> B1, B2 or B3: equal parts of that batch, in order."""
    return lambda batch, place: part(batch, place, of)


def whole(view: View, of: int) -> Any:
    """As `parts`, but B2 is the step's batch, and B1 and B3, as large, are from passes in another random order."""
    rows = drawn_batches(view)

    def take(batch: Any, place: int) -> Any:
        number = (of - 1) * view.step() + place // 2
        return batch if place == 1 else view.data.batch(rows(number, len(tree_leaves(batch)[0])))

    return take


BATCHES = {"parts": (parts, ()), "whole": (whole, (ORDER,))}  # how a step's batches are made, and what is drawn for it


@dataclass(frozen=True)
class FirstOrder:
    """The gradient after the inner step: v = g(theta - alpha g(theta; B1); B2)."""

    parts = 2

    def correct(self, view: View, alpha: float, take: Any) -> Any:
        return None


@dataclass(frozen=True)
class HessianFree:
    """v - alpha (g(theta + delta v; B3) - g(theta - delta v; B3)) / (2 delta), with the v of `FirstOrder`."""

    delta: float = 1e-3
    parts = 3

    def __post_init__(self) -> None:
        if not 0 < self.delta < float("inf"):
            raise UserError(f"per_fedavg(delta={self.delta:g}) divides by delta: give more than 0.")

    def correct(self, view: View, alpha: float, take: Any) -> Any:
        def rule(scratch: Any, v: Tensor, theta: Tensor, batch: Any):
            third = take(batch, 2)
            ahead, behind = (view.task.gradient(theta + side * v, third) for side in (self.delta, -self.delta))
            return scratch, v - alpha * (ahead - behind) / (2 * self.delta)

        return (), rule


@dataclass(frozen=True)
class MetaStep(Piece):
    """theta <- theta - lr v with the variant's v, after the inner step theta' = theta - alpha g(theta; B1), a constant.

    Fallah et al., "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning
    Approach", NeurIPS 2020, Algorithm 1, and its experiments for the variants FO and HF. Its batches D, D' and D'' are
    drawn independently, as here where `batches` is whole; where it is parts, they are halves or thirds of the step's
    one batch. The inner step has no momentum; v is taken after clipping. alpha=0.01 is our choice; PeFLL's comparison
    is of first order (A.2). Stored: nothing. Sent: theta. Every client, seen or not, adapts the global model to its
    training data before it predicts, by `FineTune` beside this piece.
    """

    alpha: float = 0.01
    variant: Any = FirstOrder()
    batches: str = "parts"

    def __post_init__(self) -> None:
        if self.alpha < 0 or self.batches not in BATCHES:
            raise UserError(f"{self!r} is impossible: alpha is 0 or more, batches {' or '.join(BATCHES)}.")

    @classmethod
    def neutral(cls):
        return "at alpha 0 it is FedAvg on the second part of every batch"

    @property
    def smallest_batch(self):
        return 2 * self.variant.parts if self.batches == "parts" else 2

    def draws(self, space: Space):
        return BATCHES[self.batches][1]

    def objective(self, view: View, loss: Loss):
        take = BATCHES[self.batches][0](view, self.variant.parts)

        def after(theta: Tensor, batch: Any) -> Tensor:
            inner = view.task.gradient(theta.detach(), take(batch, 0)).detach()
            return loss(theta - self.alpha * inner, take(batch, 1))

        return after

    def correct(self, view: View):
        return self.variant.correct(view, self.alpha, BATCHES[self.batches][0](view, self.variant.parts))


@paper("its Algorithm 1", weighting="uniform", optimizer="sgd")
def per_fedavg(
    alpha: float = MetaStep.alpha,
    variant: str = "first_order",
    delta: float = HessianFree.delta,
    epochs: int = FineTune.epochs,
    batch: int = FineTune.batch,
    batches: str = MetaStep.batches,
) -> Algorithm:
    """A global model that is good after `epochs` passes at step size alpha: variant=first_order|hessian_free; the
    gradients of a step use parts of one batch, or whole batches: batches=parts|whole (Fallah et al. 2020).

    Use it where every client, a new one too, will adapt the model in a few steps: it trains a model that is good after
    them.
    """
    variants = {"first_order": FirstOrder(), "hessian_free": HessianFree(delta)}
    if variant not in variants:
        raise UserError(f"per_fedavg(variant={variant}) is unknown: use {' or '.join(variants)}.")
    adapt = FineTune(epochs, batch=batch, lr=alpha, optimizer=Sgd())
    named = f"per_fedavg(alpha={alpha:g}, variant={variant}{changed(per_fedavg, batches=batches)})"
    return algorithm(MetaStep(alpha, variants[variant], batches), adapt, name=named)
