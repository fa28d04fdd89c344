"""Ditto: beside the global model, each client trains one of its own that is held near it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from driftless.errors import UserError
from driftless.piece import Piece, View


class Own(NamedTuple):
    """A client's model beside the one that is synchronised."""

    model: Tensor  # [1, D]: no vector over parameters, so no synchronisation withholds it


TWO_MODELS = "each has a model of the client's own, and a client predicts with one"


@dataclass(frozen=True)
class Ditto(Piece):
    """v_i <- v_i - lr (g_i(v_i) + lam (v_i - sent)), as many steps on the same batches as the global model takes.

    Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021, Algorithm 1; v_i starts
    at the initial model. A personal parameter is held near the client's own. Statistics of normalisation are the global
    model's. Stored: v_i. Sent: as without it. The client predicts with v_i; one never seen, with the global model.
    """

    members = True
    excludes = dict.fromkeys(("Mixture", "MoreauEnvelope"), TWO_MODELS)

    lam: float = 1.0

    def __post_init__(self) -> None:
        if self.lam < 0:
            raise UserError(f"ditto(lam={self.lam:g}) would push away from the global model: give 0 or more.")

    @classmethod
    def neutral(cls):
        return "at every value of lam the global model is FedAvg's: the second one is never read by the first"

    def client_memory(self, theta: Tensor):
        return Own(theta[None])

    def remember(self, view: View):
        near = torch.where(view.shared, view.sent, view.model)

        def pull(scratch, g, theta, batch):
            return scratch, g + self.lam * (theta - near)

        return Own(view.descend(view.client.model[0], correct=pull)[None])

    def personal(self, view: View, theta: Tensor):
        return torch.where(torch.as_tensor(view.fresh), theta, view.client.model[0])
