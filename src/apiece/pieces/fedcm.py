"""FedCM: every client mixes the server's last direction into its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from apiece.algebra.composition import Algorithm, algorithm
from apiece.algebra.message import Weighted
from apiece.algebra.papers import paper
from apiece.algebra.piece import Piece
from apiece.algebra.view import View
from apiece.errors import UserError


class Direction(NamedTuple):
    mean: Tensor


@dataclass(frozen=True)
class FedCM(Piece):
    """g <- a g + (1 - a) Delta;   Delta <- mean of (start - end) / (K lr), zero in the first round.

    Xu et al., "FedCM: Federated Learning with Client-level Momentum", 2021, Algorithm 2. Each client divides by its own
    number of steps and the round's step size, and the mean has the run's weights, where the paper's is uniform.
    Parameters that are never synchronized follow g alone, for the server has no direction for them. Stored: Delta [D],
    on the server. Sent down: Delta. Sent up, beside the model: a client's normalized difference [D]; K lr alone where
    all clients take equally many steps and the mean of the models gives that of start - end (`View.equal_steps`,
    `View.mean_is_uniform`), as in the paper. An unseen client uses the global model.
    """

    alpha: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise UserError(f"fedcm(alpha={self.alpha:g}) is no share of the gradient: give more than 0, at most 1.")

    @classmethod
    def neutral(cls):
        return cls(1.0), "fedavg"

    def server_memory(self, theta: Tensor):
        return Direction(torch.zeros_like(theta))

    def tell(self, memory: Direction):
        return memory

    def correct(self, view: View):
        fresh = torch.where(view.shared, self.alpha, torch.ones_like(view.sent))
        carried = (1 - self.alpha) * view.server.mean
        return (), lambda scratch, g, theta, batch: (scratch, fresh * g + carried)

    def report(self, view: View):
        length = view.steps.clamp(min=1) * view.lr  # a number, or [D] where step sizes differ
        length = torch.where(length > 0, length, 1.0)  # a parameter whose step size is 0 does not move
        told = view.mean_is_uniform and view.equal_steps and not length.dim()
        return Weighted(length if told else (view.start - view.end) / length)

    def learn(self, memory: Direction, g: Tensor, report: Weighted, share: float):
        return g, Direction(report.x if report.x.dim() else g / report.x)


@paper(
    "FedInit's comparison",
    weighting="uniform",
    optimizer="sgd(weight_decay=0.001)",
    lr=0.1,
    schedule="exponential(0.998)",
    clip=10.0,
)
def fedcm(alpha: float = FedCM.alpha) -> Algorithm:
    """Client-level momentum: alpha of the gradient, the rest the server's last direction (Xu et al. 2021).

    Use it where only few of many clients are asked and none can keep a state: the correction is kept by the server and
    sent beside the model.
    """
    return algorithm(FedCM(alpha), name=f"fedcm(alpha={alpha:g})")
