"""kNN-Per: the global model's probabilities mixed with those of the nearest training samples in its feature space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from apiece.algebra.composition import Algorithm, algorithm
from apiece.algebra.papers import paper
from apiece.algebra.piece import Piece
from apiece.algebra.view import View
from apiece.errors import UserError
from apiece.pieces.samples import one_class

CHUNK = 500  # samples at a time
WEIGHTS = tuple(i / 10 for i in range(11))


@dataclass(frozen=True)
class Neighbors(Piece):
    """p = weight p_knn + (1 - weight) softmax(model(x));   p_knn(c) ~ sum exp(-d^2 / (D scale)) over those of class c

    among the `count` nearest training samples; d^2 is the squared Euclidean distance of features [D], the input of the
    last layer. Marfoq et al., "Personalized Federated Learning through Local Memorization", ICML 2022, section 3.
    scale=100 is from Scott et al., "PeFLL", ICLR 2024, A.2, where each client takes the better `count` of 5 and 10.
    weight=None: each client takes the first weight of 0, 0.1, ..., 1 that is right most often on its training samples,
    each without itself as a neighbor; this favors the model, which was trained on them. Stored: nothing (features are
    computed when needed). Sent: nothing extra. An unseen client uses its own training samples. The scores are log p.
    """

    count: int = 10
    scale: float = 100.0
    weight: float | None = None

    def __post_init__(self) -> None:
        if self.count < 1 or self.scale <= 0 or not 0 <= (self.weight or 0.0) <= 1:
            raise UserError(
                f"knn_per(count={self.count}, scale={self.scale:g}, weight={self.weight}) is impossible: "
                "count is 1 or more, scale above 0, weight within 0 and 1."
            )

    @classmethod
    def neutral(cls):
        return cls(weight=0.0), "fedavg"

    def predict(self, view: View):
        if not one_class(view):
            raise UserError("knn_per mixes in the labels of near samples: labels must be classes, one a sample.")
        y = view.data.all()[1]
        if not len(y):
            return None
        parts = [view.data.batch(rows)[0] for rows in torch.arange(len(y), device=y.device).split(CHUNK)]
        keys = torch.cat([self._features(view, x) for x in parts])
        weight = self._validated(view, parts, y, keys) if self.weight is None else self.weight

        def scores(x: Any) -> Tensor:
            model = view.task.outputs(view.end, x).softmax(-1)
            nearest = self._nearest(self._distances(self._features(view, x), keys), y, model.shape[-1])
            mixed = weight * nearest + (1 - weight) * model
            return mixed.clamp(min=torch.finfo(mixed.dtype).tiny).log()

        return scores

    def _features(self, view: View, x: Any) -> Tensor:
        return view.task.features(view.end, x).flatten(1)

    def _distances(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Squared distances divided by D scale: [Q, N]."""
        exact = torch.cdist(queries, keys, compute_mode="donot_use_mm_for_euclid_dist")
        return exact.square() / (keys.shape[1] * self.scale)

    def _nearest(self, distances: Tensor, y: Tensor, classes: int) -> Tensor:
        """Probabilities [Q, C] from the nearest of N samples with labels y [N]."""
        near, who = distances.topk(min(self.count, len(y)), largest=False)
        return ((-near).softmax(-1)[..., None] * F.one_hot(y, classes)[who]).sum(1)

    def _validated(self, view: View, parts: list[Any], y: Tensor, keys: Tensor) -> Tensor:
        model = torch.cat([view.task.outputs(view.end, x).softmax(-1) for x in parts])
        itself = torch.eye(len(y), dtype=torch.bool, device=y.device)
        others = torch.where(itself, torch.inf, self._distances(keys, keys))
        nearest = self._nearest(others, y, model.shape[-1]) if len(y) > 1 else model
        weights = torch.stack([model.new_full((1, 1), weight) for weight in WEIGHTS])
        right = ((weights * nearest + (1 - weights) * model).argmax(-1) == y).sum(-1)
        return weights.flatten()[right.argmax()]


@paper("the authors' code on CIFAR-10", weighting="samples", optimizer="sgd(weight_decay=0.0005)", lr=0.05)
def knn_per(
    count: int = Neighbors.count, scale: float = Neighbors.scale, weight: float | None = Neighbors.weight
) -> Algorithm:
    """The global model's probabilities mixed with those of the nearest training samples; weight=none: each client's own
    (Marfoq et al. 2022); scale=100 is from PeFLL's comparison.

    Use it as an addition where clients have their training samples at hand when they predict: training stays as it is.
    """
    return algorithm(Neighbors(count, scale, weight), name=f"knn_per(count={count})")
