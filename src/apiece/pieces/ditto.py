"""Ditto: beside the global model, each client trains a model of its own, which is held near the global one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from apiece.algebra.composition import Algorithm, algorithm, changed
from apiece.algebra.papers import paper
from apiece.algebra.piece import Piece
from apiece.algebra.view import View
from apiece.errors import UserError
from apiece.pieces.fine_tune import ORDER, drawn_batches
from apiece.vector.space import Space


class Own(NamedTuple):
    """A client's own model, beside the synchronized one."""

    model: Tensor  # [1, D]: a leaf [D] would follow the synchronization of its group


TWO_MODELS = "each trains a model of the client's own, and a client predicts with only one"


@dataclass(frozen=True)
class Ditto(Piece):
    """v_i <- v_i - lr (g_i(v_i) + lam (v_i - sent)), for as many steps and on the same batches as the global model.

    Where `steps` is given, v_i takes that many steps on full batches of its own: passes over the client's samples,
    without augmentation, in an order drawn for the round. Where `lr` is given, the steps have that size in every round.

    Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021, Algorithm 1, which has s
    personal steps of size eta; the authors' code takes the global model's number, on its batches. v_i starts at the
    initial model. A personal parameter is held near the client's own. Statistics of normalization are the global
    model's. Stored: v_i. Sent: nothing extra. The client predicts with v_i; an unseen client uses the global model.
    """

    serves = "members"
    excludes = dict.fromkeys(("Mixture", "MoreauEnvelope"), TWO_MODELS)

    lam: float = 1.0
    lr: float | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        if self.lam < 0:
            raise UserError(f"ditto(lam={self.lam:g}) would push away from the global model: give 0 or more.")
        if (self.lr or 0.0) < 0 or (self.steps is not None and self.steps < 1):
            raise UserError(f"{self!r} is impossible: give lr of 0 or more, and 1 step or more, or neither.")

    @classmethod
    def neutral(cls):
        return "at every value of lam the global model is FedAvg's: the second one is never read by the first"

    def draws(self, space: Space):
        return () if self.steps is None else (ORDER,)

    def client_memory(self, theta: Tensor):
        return Own(theta[None])

    def remember(self, view: View):
        near = view.with_own(view.sent)

        def pull(scratch, g, theta, batch):
            return scratch, g + self.lam * (theta - near)

        batches = None if self.steps is None else self._batches(view, self.steps)
        return Own(view.descend(view.client.model[0], batches=batches, lr=self.lr, correct=pull)[None])

    def _batches(self, view: View, steps: int) -> list[Tensor]:
        rows = drawn_batches(view)
        return [rows(k, len(view.batches[0])) for k in range(steps)]

    def personal(self, view: View, theta: Tensor):
        return torch.where(torch.as_tensor(view.fresh), theta, view.client.model[0])


@paper("the authors' code on Fashion-MNIST", weighting="uniform", optimizer="sgd", lr=0.05)
def ditto(lam: float = Ditto.lam, lr: float | None = Ditto.lr, steps: int | None = Ditto.steps) -> Algorithm:
    """Every client trains a second model, held near the global one by lam, with its own lr and steps or the round's (Li
    et al. 2021).

    Use it where each client should have a whole model of its own, held near the shared one. Local computation doubles.
    """
    return algorithm(Ditto(lam, lr, steps), name=f"ditto(lam={lam:g}{changed(ditto, lr=lr, steps=steps)})")
