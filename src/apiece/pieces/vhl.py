"""VHL: every client also learns the same noise, whose features attract the features of its own samples, by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apiece.algebra.composition import Algorithm, algorithm
from apiece.algebra.draws import Draw
from apiece.algebra.papers import paper
from apiece.algebra.piece import Piece
from apiece.algebra.view import Loss, View
from apiece.errors import UserError
from apiece.pieces.contrast import contrast
from apiece.pieces.samples import input_shape, one_class
from apiece.pieces.wider_head import widened
from apiece.vector.space import Space

SPREAD, COARSE = 0.5, 8
REFUSAL = "vhl makes inputs of noise, each with a class: samples must be real numbers, and labels classes."


@dataclass(frozen=True)
class VHL(Piece):
    """F = loss(x, y) + alpha loss(u, C + v) + align contrast(z(x), y; stopgrad z(u), v) + among contrast(z(u), v),

    where z is the input of the last layer, in evaluation mode, over its length; the contrast of a set with labels y is

        mean_i( mean_{j != i: y_j = y_i}( -log( e^{<z_i, z_j>/0.07} / sum_{k != i} e^{<z_i, z_k>/0.07} ) ) ),

    0 where no other sample has y_i. Tang et al., "Virtual Homogeneity Learning: Defending against Data Heterogeneity in
    Federated Learning", ICML 2022; values and contrasts are those of the authors' code, `among` too, and both contrasts
    end after `epochs` passes over the client's data (of ceil(n / B) steps each). The virtual set is the same for all
    clients and rounds: `samples` points u with labels v of C classes, u = m_v + 0.5 N(0, 1), m_v ~ N(0, 1); images are
    drawn coarse (at most 8 x 8) and then enlarged. This is the code's Gaussian noise, before the code clamps,
    normalizes and augments it; the code's default is images of an untrained StyleGAN, 200 for each of ten classes. Each
    step uses `batch` of them, in an order drawn for the round. The classifier has C more rows, for the noise, which are
    scored in training alone (the code's test takes the largest of all 2C scores). Models are averaged with the run's
    weights, which the code has as an option. Stored: nothing. Sent: nothing extra but the wider classifier, in sums, so
    secure aggregation is possible. An unseen client uses the global model.
    """

    alpha: float = 1.0
    align: float = 1.0
    among: float = 0.1
    epochs: int = 5
    samples: int = 2000
    batch: int = 128

    def __post_init__(self) -> None:
        if min(self.alpha, self.align, self.among, self.epochs) < 0 or min(self.samples, self.batch) < 2:
            raise UserError("vhl needs alpha, align, among and epochs of 0 or more, samples and batch of 2 or more.")

    @classmethod
    def neutral(cls):
        return "its classifier is wider at every value"

    def prepare(self, module: nn.Module) -> nn.Module:
        return widened(module)

    def draws(self, space: Space):
        classes = [e.shape[0] for e in space.parameters if len(e.shape) > 1][-1] // 2
        return (
            Draw("middles", lambda sample: (classes, *_coarse(sample)), each="run"),
            Draw("spread", lambda sample: (self.samples, *_coarse(sample)), each="run"),
            Draw("order", (self.samples,), "uniform"),
        )

    def objective(self, view: View, loss: Loss):
        sample, middles = input_shape(view, one_class(view), REFUSAL), view.draws["middles"]
        order, size = torch.argsort(view.draws["order"]), min(self.batch, self.samples)
        aligned = self.epochs * -(-view.data.size // len(view.batches[0]))

        def value(theta: Tensor, batch: Any) -> Tensor:
            rows = order[(view.step() * size + torch.arange(size, device=order.device)) % self.samples]
            labels = rows % len(middles)
            u = _enlarged(middles[labels] + SPREAD * view.draws["spread"][rows], sample)
            near, far = (view.task.features(theta, x).flatten(1) for x in (batch[0], u))
            virtual = view.task.loss(view.task.head(theta, far), len(middles) + labels)
            both = torch.cat([near, far.detach()]), torch.cat([batch[1], labels])
            pull = self.align * contrast(*both) + self.among * contrast(far, labels)
            return loss(theta, batch) + self.alpha * virtual + (view.step() < aligned) * pull

        return value


def _coarse(sample: tuple[int, ...]) -> tuple[int, ...]:
    return (sample[0], *(min(side, COARSE) for side in sample[1:])) if len(sample) == 3 else sample


def _enlarged(u: Tensor, sample: tuple[int, ...]) -> Tensor:
    return F.interpolate(u, size=sample[1:], mode="bilinear") if len(sample) == 3 else u


@paper(
    "the authors' code on CIFAR-10", weighting="samples", optimizer="sgd(momentum=0.9, weight_decay=0.0001)", lr=0.01
)
def vhl(
    alpha: float = VHL.alpha,
    align: float = VHL.align,
    among: float = VHL.among,
    epochs: int = VHL.epochs,
    samples: int = VHL.samples,
    batch: int = VHL.batch,
) -> Algorithm:
    """Clients learn shared noise as extra classes, and align features with it for `epochs` (Tang et al. 2022).

    Use it for image classifiers on clients whose labels differ strongly, where a wider last layer and longer local
    steps are acceptable.
    """
    return algorithm(VHL(alpha, align, among, epochs, samples, batch), name=f"vhl(align={align:g})")
