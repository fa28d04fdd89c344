"""FedProx: a pull towards the start of local training, or towards the server's model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from apiece.algebra.composition import Algorithm, algorithm, changed
from apiece.algebra.papers import paper
from apiece.algebra.piece import Piece
from apiece.algebra.view import View
from apiece.errors import UserError

CENTERS = ("start", "server")


@dataclass(frozen=True)
class Proximal(Piece):
    """g <- g + mu (theta - center), the gradient of mu/2 ||theta - center||^2.

    Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, equation (2), where w^t is the center.
    `center="start"`: the model at which training started. `center="server"`: the model that the server sent. The two
    differ under relaxed initialization alone: the code of FedInit's authors pulls towards the relaxed start, and
    equation (2) towards the server's model. A personal parameter, which the server does not send, is pulled towards its
    start in either case. Stored: nothing. Sent: nothing extra. An unseen client uses the global model.
    """

    mu: float = 0.01
    center: str = "start"

    def __post_init__(self) -> None:
        if self.mu < 0:
            raise UserError(f"fedprox(mu={self.mu:g}) would push away from the start: give 0 or more.")
        if self.center not in CENTERS:
            raise UserError(f"fedprox(center={self.center}) is unknown: use {' or '.join(CENTERS)}.")

    @classmethod
    def neutral(cls):
        return cls(0.0), "fedavg"

    def correct(self, view: View):
        center = self._center(view)
        return (), lambda scratch, g, theta, batch: (scratch, g + self.mu * (theta - center))

    def _center(self, view: View) -> Tensor:
        return view.start if self.center == "start" else torch.where(view.shared, view.sent, view.start)


@paper("its experiments", weighting="samples", optimizer="sgd")
def fedprox(mu: float = Proximal.mu, center: str = Proximal.center) -> Algorithm:
    """A proximal term holds training near its start or the server's model: center=start|server (Li et al. 2020);
    mu=0.01 is from FedCOG's appendix A.2.2.

    Use it where clients do very different amounts of local work, or where long local training leaves the shared model
    too far behind. With a small mu it differs little from FedAvg.
    """
    return algorithm(Proximal(mu, center), name=f"fedprox(mu={mu:g}{changed(fedprox, center=center)})")
