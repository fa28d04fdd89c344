"""pFedMe: each client trains a personal model under a pull towards the shared model, which follows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from apiece.algebra.composition import Algorithm, Server, algorithm, changed
from apiece.algebra.optim import Sgd
from apiece.algebra.papers import paper
from apiece.algebra.piece import Piece
from apiece.algebra.server_optim import Descent
from apiece.algebra.view import View
from apiece.errors import UserError
from apiece.pieces.ditto import Own
from apiece.pieces.fine_tune import ORDER, passes, smallest_batch
from apiece.vector.space import Space

REPLACED = "pFedMe replaces the gradient, so nothing that was added to it would be left"

BEGINS = {"round": lambda theta, w: theta, "batch": lambda theta, w: w}  # where theta starts on a batch


@dataclass(frozen=True)
class MoreauEnvelope(Piece):
    """theta <- theta - step_size (g(theta) + lam (theta - w)), `steps` times a batch, then w <- w - lr lam (w - theta).

    Dinh et al., "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020, Algorithm 1, which leaves open
    where the descent to theta starts: at the w of the round, from where theta continues from batch to batch (`restart`
    round, as in the authors' code), or at the w of every batch (`restart` batch). `steps` is K: 5 in the authors' code,
    3 in PeFLL's comparison (A.2). The code also adds 1e-3 theta to the gradient, trains all clients, averages those
    asked and has an lr of 0.005. An lr lam above 1 overshoots. g is neither clipped nor the composed objective's. The
    statistics of normalization are the global model's. Stored: theta_i, a copy. Sent: w_i. The client predicts with
    theta_i; an unseen client takes `epochs` passes of the same theta-steps from the global model.
    """

    lam: float = 15.0
    steps: int = 5
    step_size: float = 0.01
    epochs: int = 20
    batch: int = 32
    restart: str = "round"

    excludes = dict.fromkeys(("objective", "correct"), REPLACED)  # whatever else would be in the gradient

    def __post_init__(self) -> None:
        if min(self.lam, self.step_size) <= 0 or self.epochs < 0 or min(self.steps, self.batch) < 1:
            raise UserError(
                f"{self!r} is impossible: give lam and step_size above 0, without which nothing is learnt, steps and "
                "batch of 1 or more, and epochs of 0 or more."
            )
        if self.restart not in BEGINS:
            raise UserError(f"pfedme(restart={self.restart}) is unknown: use {' or '.join(BEGINS)}.")

    @classmethod
    def neutral(cls):
        return "w moves by lam (w - theta) alone, and at no value is this a gradient of the clients' losses"

    @property
    def smallest_batch(self):
        return smallest_batch(self.batch, self.epochs)

    def draws(self, space: Space):
        return (ORDER,)

    def client_memory(self, theta: Tensor):
        return Own(theta[None])

    def correct(self, view: View):
        def rule(theta: Tensor, g: Tensor, w: Tensor, batch: Any):
            theta = BEGINS[self.restart](theta, w)
            for _ in range(self.steps):
                theta = theta - self.step_size * (view.task.gradient(theta, batch) + self.lam * (theta - w))
            return theta, self.lam * (w - theta)

        return view.end, rule

    def remember(self, view: View):
        return Own(view.scratch[None])

    def personal(self, view: View, theta: Tensor):
        if not view.fresh:
            return view.client.model[0]

        def pull(scratch, g, here, batch):
            return scratch, g + self.lam * (here - theta)

        batches = passes(view, self.epochs, self.batch)
        return view.descend(theta, batches=batches, optimizer=Sgd(), lr=self.step_size, correct=pull)


@paper("the authors' code on MNIST", weighting="samples", optimizer="sgd", lr=0.005)
def pfedme(
    lam: float = MoreauEnvelope.lam,
    steps: int = MoreauEnvelope.steps,
    step_size: float = MoreauEnvelope.step_size,
    beta: float = Descent.lr,
    epochs: int = MoreauEnvelope.epochs,
    batch: int = MoreauEnvelope.batch,
    restart: str = MoreauEnvelope.restart,
) -> Algorithm:
    """Personal models by Moreau envelopes: `steps` of step_size a batch, beta is the server's step, and theta starts at
    w anew in each restart=round|batch (Dinh et al. 2020).

    Use it where each client needs a whole model near the shared one, and `steps` inner steps for each local step are
    affordable. Its step sizes need care.
    """
    parts: list[Any] = [MoreauEnvelope(lam, steps, step_size, epochs, batch, restart)]
    if beta != 1.0:
        parts.append(Server(Descent(beta)))
    return algorithm(*parts, name=f"pfedme(lam={lam:g}{changed(pfedme, restart=restart)})")
