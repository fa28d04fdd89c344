"""FedDecorr: a penalty on correlated features keeps them from collapsing into few dimensions."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from apiece.algebra.composition import Algorithm, algorithm
from apiece.algebra.papers import paper
from apiece.algebra.piece import Piece
from apiece.algebra.view import Loss, View
from apiece.errors import UserError


@dataclass(frozen=True)
class FedDecorr(Piece):
    """F = loss + beta mean_{i != j}((Z^T Z)_ij^2) / N, Z the batch's N features, z-scored (unbiased variance + 1e-8).

    Shi et al., "Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous Federated Learning", ICLR
    2023. The paper's term is ||K||_F^2 / d^2, where K is the correlation matrix; the term here is the authors' code's,
    without the diagonal and (N - 1)^2 / N times as large. beta is 0.1 in that code and 0.01 in FedCOG's comparison. A
    batch of one sample has no penalty. Features are the input of the last layer, in evaluation mode. Stored: nothing.
    Sent: nothing extra. An unseen client uses the global model.
    """

    beta: float = 0.01

    def __post_init__(self) -> None:
        if self.beta < 0:
            raise UserError(f"feddecorr(beta={self.beta:g}) would correlate features: give 0 or more.")

    @classmethod
    def neutral(cls):
        return cls(0.0), "fedavg"

    def objective(self, view: View, loss: Loss):
        if not self.beta:
            return loss
        return lambda theta, batch: (
            loss(theta, batch) + self.beta * correlation(view.task.features(theta, batch[0]).flatten(1))
        )


def correlation(z: Tensor) -> Tensor:
    """The mean square of Z^T Z off its diagonal, over N, for features z [N, F]; 0 for one sample or feature."""
    count, width = z.shape
    if min(count, width) < 2:
        return z.new_zeros(())
    z = (z - z.mean(0)) / (z.var(0) + 1e-8).sqrt()
    product = z.T @ z
    others = product.square().sum() - product.diagonal().square().sum()
    return others / (width * (width - 1)) / count


@paper("the authors' code on CIFAR-10", weighting="samples", optimizer="sgd(momentum=0.9, weight_decay=1e-05)", lr=0.01)
def feddecorr(beta: float = FedDecorr.beta) -> Algorithm:
    """A penalty on correlated features of a batch (Shi et al. 2023); beta=0.01 is from FedCOG's appendix A.2.2, the
    authors' code has 0.1.

    Use it as an addition to another algorithm where clients hold few classes: it sends and keeps nothing.
    """
    return algorithm(FedDecorr(beta), name=f"feddecorr(beta={beta:g})")
