"""MOON: a contrast pulls a client's features towards the global model's and away from its own last model's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from apiece.algebra.composition import Algorithm, algorithm
from apiece.algebra.papers import paper
from apiece.algebra.piece import Piece
from apiece.algebra.view import Loss, View
from apiece.errors import UserError


@dataclass(frozen=True)
class MOON(Piece):
    """F = loss + mu mean(-log(e^{cos(z, z_glob)/T} / (e^{cos(z, z_glob)/T} + e^{cos(z, z_prev)/T}))).

    Li, He, Song, "Model-Contrastive Federated Learning", CVPR 2021, equations (3) and (4), Algorithm 1, lines 14 to 17:
    z, z_glob and z_prev are a batch's features in the model that trains, the global model and the client's last model;
    here the input of the last layer, in evaluation mode (the paper adds a projection head). There is no contrast until
    a client has a last model, which grows old while the client is not asked. A personal parameter of the global model
    is the client's own: where features depend on personal parameters alone, the contrast has no gradient. mu=1 and
    T=0.5 are from the authors' code; mu is 0.01 in FedCOG's comparison. Stored: the client's model. Sent: nothing
    extra. An unseen client uses the global model.
    """

    mu: float = 1.0
    temperature: float = 0.5

    def __post_init__(self) -> None:
        if self.mu < 0 or self.temperature <= 0:
            raise UserError(
                f"moon(mu={self.mu:g}, temperature={self.temperature:g}): mu must be 0 or more, temperature above 0."
            )

    @property
    def reads(self):
        return frozenset({"model", "fresh"} if self.mu else ())

    @classmethod
    def neutral(cls):
        return cls(0.0), "fedavg"

    def objective(self, view: View, loss: Loss):
        if not self.mu:
            return loss
        everyone = view.with_own(view.sent)
        mu = self.mu * (1 - torch.as_tensor(view.fresh).to(view.sent.dtype))

        def value(theta: Tensor, batch: Any) -> Tensor:
            z, near, far = (view.task.features(model, batch[0]).flatten(1) for model in (theta, everyone, view.model))
            contrast = -F.logsigmoid((F.cosine_similarity(z, near) - F.cosine_similarity(z, far)) / self.temperature)
            return loss(theta, batch) + mu * contrast.mean()

        return value


@paper(
    "its experiments and the authors' code",
    weighting="samples",
    optimizer="sgd(momentum=0.9, weight_decay=1e-05)",
    lr=0.01,
)
def moon(mu: float = MOON.mu, temperature: float = MOON.temperature) -> Algorithm:
    """A contrast pulls features towards the global model's and away from the client's last model's (Li et al. 2021).

    Use it for classifiers with several layers on clients that come back often. Each step passes a batch through three
    models, and each client keeps one.
    """
    return algorithm(MOON(mu, temperature), name=f"moon(mu={mu:g})")
