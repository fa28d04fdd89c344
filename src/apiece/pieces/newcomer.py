"""A client never seen trains personal parameters of its own on the shared ones as they stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from apiece.algebra.piece import Piece
from apiece.algebra.view import View
from apiece.errors import UserError
from apiece.pieces.fine_tune import ORDER, passes


@dataclass(frozen=True)
class Newcomer(Piece):
    """A new client's y_i, from the initial one: `epochs` passes of y_i <- y_i - lr grad_y f_i(x, y_i) at the shared x.

    Collins et al., "Exploiting Shared Representations for Personalized Federated Learning", ICML 2021, on new users; 20
    epochs as in Scott et al., "PeFLL", ICLR 2024, appendix A.2. Stored and sent: nothing. Clients that took part
    predict with what they have.
    """

    newcomers = True

    epochs: int = 20
    batch: int = 32

    def __post_init__(self) -> None:
        if self.epochs < 0 or self.batch < 1:
            raise UserError(f"{self!r} is impossible: give 0 or more epochs, and batches of 1 or more.")

    @classmethod
    def neutral(cls):
        return cls(epochs=0), "the same without it"

    def draws(self, space: Any):
        return (ORDER,)

    def personal(self, view: View, theta: Tensor):
        if not view.fresh or not self.epochs:
            return theta
        begin = torch.where(view.shared, theta, view.model)  # a new client's own model is the initial one
        own = torch.where(view.shared, 0.0, torch.ones_like(theta) * view.lr)  # no step, decay included
        return view.descend(begin, batches=passes(view, self.epochs, self.batch), lr=own)
