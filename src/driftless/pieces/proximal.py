"""FedProx: a pull towards the start of the interval."""

from __future__ import annotations

from dataclasses import dataclass

from driftless.errors import UserError
from driftless.piece import Piece, View


@dataclass(frozen=True)
class Proximal(Piece):
    """g <- g + mu (theta - start), the gradient of mu/2 ||theta - start||^2.

    Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, equation (2): w^t is `start`. Stored:
    nothing. Sent: nothing more. A client never seen: the global model.
    """

    mu: float = 0.01

    def __post_init__(self) -> None:
        if self.mu < 0:
            raise UserError(f"fedprox(mu={self.mu:g}) would push away from the start: give 0 or more.")

    @classmethod
    def neutral(cls):
        return cls(0.0), "fedavg"

    def correct(self, view: View):
        return (), lambda scratch, g, theta, batch: (scratch, g + self.mu * (theta - view.start))
