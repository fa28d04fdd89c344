"""A first round that moves no model: clients' memories start from its gradients at the initial models."""

from __future__ import annotations

import torch
from torch import Tensor

from apiece.algebra.piece import Piece
from apiece.algebra.view import Loss, View
from apiece.system.device import scalar


class FirstGradients(Piece):
    """In the first round g = grad f_i(start) in every local step, and kept = start; later rounds are unchanged.

    Chen et al., "Sharper Convergence Guarantees for Federated Learning with Partial Model Personalization", 2023,
    section 4.2, as we read it (the text at hand lacks the formula): its variates start as c_i = grad f_i(x, y_i) and
    c = mean_i c_i, as in Karimireddy et al. 2020. With
    SCAFFOLD's rule, c_i is then the mean gradient of the round's batches at the initial models. The first round asks
    every client; an absent client starts with 0. Stored: nothing. Sent: nothing extra, but that round counts as one of
    the run's. An unseen client is served as without this piece.
    """

    runs_last = True
    asks_all = True

    @classmethod
    def neutral(cls):
        return "its first round moves no model, and FedAvg's does"

    def objective(self, view: View, loss: Loss) -> Loss:
        first = scalar(view.round, view.sent) == 0
        start = lambda theta: view.start + (theta - theta.detach())  # with the gradient of theta
        return lambda theta, batch: loss(torch.where(first, start(theta), theta), batch)

    def keep(self, view: View, theta: Tensor) -> Tensor:
        return torch.where(scalar(view.round, view.sent) == 0, view.start, theta)
