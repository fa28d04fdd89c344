"""FedNova: clients that took more steps do not count for more."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from driftless.errors import UserError
from driftless.piece import Message, Piece, View, Weighted


@dataclass(frozen=True)
class FedNova(Piece):
    """w <- w - (sum p_i a_i) sum p_i (sent - kept_i) / a_i,   a = (K - m (1 - m^K) / (1 - m)) / (1 - m).

    Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", NeurIPS 2020,
    equations (6) and (7); a is ||a_i||_1 of section 5.2 for `momentum` m, which must be that of the clients' optimiser
    (begun afresh each round), and K without. What pieces named before this one put into the message is normalised too.
    A client stores nothing, sends one number beside the model, and is served the global model when never seen.
    """

    momentum: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise UserError(f"fednova(momentum={self.momentum:g}) is no momentum: give 0 or more, below 1.")

    @classmethod
    def neutral(cls):
        return "normalising is the method: where all take as many steps it is fedavg, but for rounding"

    def _coefficient(self, view: View) -> Tensor:
        m, steps = self.momentum, torch.as_tensor(view.steps)
        return ((steps - m * (1 - m**steps) / (1 - m)) / (1 - m)).clamp(min=1.0)  # 1 after one step

    def report(self, view: View):
        return Weighted(self._coefficient(view))

    def upload(self, view: View, message: Message):
        return message._replace(delta=message.delta / self._coefficient(view))

    def learn(self, memory: tuple, g: Tensor, report: Weighted, share: float):
        return g * report.x, memory
