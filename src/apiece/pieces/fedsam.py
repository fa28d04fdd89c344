"""FedSAM: gradients taken where the loss is worst nearby, so that training prefers flat minima."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from apiece.algebra.composition import Algorithm, algorithm
from apiece.algebra.papers import paper
from apiece.algebra.piece import Piece
from apiece.algebra.view import Loss, View
from apiece.errors import UserError


@dataclass(frozen=True)
class FedSAM(Piece):
    """F = f(theta + e), e = rho g / (||g|| + 1e-7), where g = grad f(theta) on the same batch and e is constant.

    Qu et al., "Generalized Federated Learning via Sharpness Aware Minimization", ICML 2022, Algorithm 1 (FedSAM). The
    gradient of F is clipped like any other, and corrections are added after it; the ascent follows f's own gradient,
    unclipped. f includes the terms of the pieces named before this one. A step costs two gradients. rho is 0.1 in
    FedInit's code and 0.5 in FedCOG's appendix A.2.2. Stored: nothing. Sent: nothing extra. An unseen client uses the
    global model.
    """

    rho: float = 0.1

    def __post_init__(self) -> None:
        if self.rho < 0:
            raise UserError(f"fedsam(rho={self.rho:g}) would descend before it takes a gradient: give 0 or more.")

    @classmethod
    def neutral(cls):
        return cls(0.0), "fedavg"

    def objective(self, view: View, loss: Loss):
        def ascended(theta: Tensor, batch):
            here = theta.detach()
            g = view.task.differentiate(lambda at: (loss(at, batch), ()), here)[0]
            return loss(theta + self.rho / (g.norm() + 1e-7) * g, batch)

        return ascended


@paper("its Algorithm 1", weighting="uniform", optimizer="sgd")
def fedsam(rho: float = FedSAM.rho) -> Algorithm:
    """Gradients taken where the loss is worst within rho, in two passes a step (Qu et al. 2022); rho is FedInit's.

    Use it where twice the computation is acceptable for a flatter minimum, which may generalize better. It sends and
    keeps nothing more.
    """
    return algorithm(FedSAM(rho), name=f"fedsam(rho={rho:g})")
