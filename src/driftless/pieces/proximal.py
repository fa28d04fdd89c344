"""FedProx: a pull towards the start of the interval."""

from __future__ import annotations

from dataclasses import dataclass

from driftless.piece import Piece, View


@dataclass(frozen=True)
class Proximal(Piece):
    """g + mu (theta - start), the gradient of mu/2 ||theta - start||^2.

    Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, equation (2).
    """

    mu: float = 0.01

    @classmethod
    def neutral(cls):
        return cls(0.0), "fedavg"

    def correct(self, view: View):
        return (), lambda scratch, g, theta, batch: (scratch, g + self.mu * (theta - view.start))
