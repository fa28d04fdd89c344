"""FedDecorr: features of a batch are kept from being correlated, so that they do not collapse into few dimensions."""

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
    2023. The paper's term is ||K||_F^2 / d^2, K the correlation matrix; this is the authors' own scale of
    it: (N - 1)^2 / N times as large, diagonal left out. Its beta is 0.1, and 0.01 that of FedCOG's comparison. None for
    a batch of one. Features are the input of the last layer, as the model evaluates. Stored: nothing. Sent: nothing
    more. A client never seen: the global model.
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
    """The mean square of Z^T Z off its diagonal, over N, for features z [N, F]; 0 for one sample or one feature."""
    count, width = z.shape
    if min(count, width) < 2:
        return z.new_zeros(())
    z = (z - z.mean(0)) / (z.var(0) + 1e-8).sqrt()
    product = z.T @ z
    others = product.square().sum() - product.diagonal().square().sum()
    return others / (width * (width - 1)) / count


@paper("the authors' code on CIFAR-10", weighting="samples", optimizer="sgd(momentum=0.9, weight_decay=1e-05)", lr=0.01)
def feddecorr(beta: float = FedDecorr.beta) -> Algorithm:
    """Features of a batch kept from being correlated (Shi et al. 2023); beta=0.01 as in FedCOG's tables, in the
    authors' code 0.1.
    """
    return algorithm(FedDecorr(beta), name=f"feddecorr(beta={beta:g})")
