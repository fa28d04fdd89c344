"""The personal outer step of FedAvg-P and Scaffold-P."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from apiece.algebra.piece import Piece
from apiece.algebra.view import View
from apiece.errors import UserError


@dataclass(frozen=True)
class OuterStep(Piece):
    """y_i <- y_i + size (y_K - y_i) of the personal parameters; shared ones pass.

    Chen et al., "Sharper Convergence Guarantees for Federated Learning with Partial Model Personalization", 2023,
    Algorithms 1 and 2, line 9. Size 1 keeps where training ended (FedSim). Stored: y_i, which the client keeps anyway.
    Sent: nothing. A client never seen: as without it.
    """

    size: float = 1.0

    def __post_init__(self) -> None:
        if self.size < 0:
            raise UserError(f"outer_personal={self.size:g} would step away from where training ended: give 0 or more.")

    @classmethod
    def neutral(cls):
        return cls(1.0), "the same without it"

    def keep(self, view: View, theta: Tensor):
        if self.size == 1.0:
            return theta
        return torch.where(view.shared, theta, view.model + self.size * (theta - view.model))
