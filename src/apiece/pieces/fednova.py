"""FedNova: a client does not count for more because it took more steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from apiece.algebra.broadcast import FederationFacts
from apiece.algebra.composition import Algorithm, algorithm
from apiece.algebra.message import Message, Weighted
from apiece.algebra.optim import Optimizer, Sgd
from apiece.algebra.papers import paper
from apiece.algebra.piece import Piece
from apiece.algebra.view import View
from apiece.errors import UserError
from apiece.vector.space import Space


@dataclass(frozen=True)
class FedNova(Piece):
    """w <- w - (sum p_i a_i) sum p_i (sent - kept_i) / a_i,   a = (K - m (1 - m^K) / (1 - m)) / (1 - m).

    Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", NeurIPS 2020,
    equations (6) and (7); a is ||a_i||_1 of section 5.2 for SGD with the momentum m of the clients' optimizer, and K
    without momentum; UserError for another optimizer. Momentum counts as starting at the opening of an interval and as
    continuing within it. Weight decay is left out of a, and so is FedProx's mu, which the authors' code includes.
    Whatever other pieces put into the message is normalized too; a step size of a client's own is not. Stored: nothing.
    Sent: one number beside the model. An unseen client uses the global model.
    """

    runs_last = True
    excludes = {"FedExP": "each rescales the mean of what clients send, and one would undo the other"}

    optimizer: Sgd = field(default=Sgd(), repr=False, compare=False)  # the clients', set by `complete`

    @classmethod
    def neutral(cls):
        return "normalizing is the method: where all clients take equally many steps it is fedavg up to rounding"

    def complete(self, space: Space, setting: FederationFacts | None, optimizer: Optimizer):
        if not isinstance(optimizer, Sgd):
            raise UserError(f"fednova normalizes steps of sgd, with or without momentum: give sgd, not {optimizer!r}.")
        return replace(self, optimizer=optimizer)

    def _coefficient(self, view: View) -> Tensor:
        m, steps = self.optimizer.momentum, torch.as_tensor(view.steps)
        return ((steps - m * (1 - m**steps) / (1 - m)) / (1 - m)).clamp(min=1.0)  # 1 after one step

    def report(self, view: View):
        return Weighted(self._coefficient(view))

    def upload(self, view: View, message: Message):
        return message._replace(delta=message.delta / self._coefficient(view))

    def learn(self, memory: tuple, g: Tensor, report: Weighted, share: float):
        return g * report.x, memory


@paper("the authors' code", weighting="samples", optimizer="sgd(momentum=0.9, weight_decay=0.0001)", lr=0.02)
def fednova() -> Algorithm:
    """Normalized averaging of unequal local work, under the run's momentum (Wang et al. 2020).

    Use it where clients take unequal numbers of local steps; where these are equal it is FedAvg.
    """
    return algorithm(FedNova(), name="fednova")
