"""SCAFFOLD: control variates cancel the difference between a client's gradient and the mean of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from apiece.algebra.composition import Algorithm, algorithm, changed
from apiece.algebra.message import Uniform
from apiece.algebra.papers import paper
from apiece.algebra.piece import Piece
from apiece.algebra.view import View
from apiece.errors import UserError
from apiece.pieces.first_gradients import FirstGradients

CONTROLS = ("mean_gradient", "difference")
ZERO = "zero"  # the initial variates, unless these are gradients (grad)


class Control(NamedTuple):
    variate: Tensor


@dataclass(frozen=True)
class Scaffold(Piece):
    """g <- g - c_i + c;   c_i <- the client's mean gradient;   c <- c + (S/N) mean(c_i' - c_i).

    Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020, Algorithm 1, with
    c_i' by option II: c_i' = c_i - c + (start - end) / (K lr) (line 12). `control="difference"`: that line as it
    stands, by the step size of the round in which c_i' is sent; a parameter whose step size is 0 keeps its c_i.
    `control="mean_gradient"`: the mean of the K gradients, which is what the line gives under plain SGD. It stays right
    under momentum, weight decay, clipping and a changing step size, where the difference does not. A parameter that
    took no step keeps its c_i. The mean for c is
    over all N clients, of which S answered. Stored: c_i [D] on a client, c on the server. Sent: c down and c_i' - c_i
    up, beside the model each way. An unseen client uses the global model.
    """

    control: str = "mean_gradient"

    def __post_init__(self) -> None:
        if self.control not in CONTROLS:
            raise UserError(f"scaffold(control={self.control}) is unknown: use {' or '.join(CONTROLS)}.")

    @property
    def reads(self):
        return frozenset({"gradient"} if self.control == "mean_gradient" else ())

    @classmethod
    def neutral(cls):
        return "its variates are the method: without them it is FedAvg, and no value of a parameter leaves them out"

    def server_memory(self, theta: Tensor):
        return Control(torch.zeros_like(theta))

    def client_memory(self, theta: Tensor):
        return Control(torch.zeros_like(theta))

    def tell(self, memory: Control):
        return memory

    def correct(self, view: View):
        return (), lambda scratch, g, theta, batch: (scratch, g - view.client.variate + view.server.variate)

    def report(self, view: View):
        return Uniform(self._variate(view) - view.client.variate)

    def remember(self, view: View):
        return Control(self._variate(view))

    def learn(self, memory: Control, g: Tensor, report: Uniform, share: float):
        return g, Control(memory.variate + share * report.x)

    def _variate(self, view: View) -> Tensor:
        """c_i' [D]."""
        old = view.client.variate
        if self.control == "mean_gradient":
            return torch.where(view.steps > 0, view.gradient, old)
        length = view.steps * view.lr  # numbers, or [D] where groups differ
        moved = (view.start - view.end) / torch.where(length > 0, length, 1.0)
        return torch.where(length > 0, old - view.server.variate + moved, old)


@paper("its Algorithm 1", weighting="uniform", optimizer="sgd")
def scaffold(control: str = Scaffold.control, init_control: str = ZERO) -> Algorithm:
    """Control variates against client drift: control=mean_gradient|difference, which start by init_control=zero|grad
    (Karimireddy et al. 2020).

    Use it where clients' labels differ, each takes many steps of plain SGD, and all come back often: the variate of a
    client that is rarely asked is out of date. Each message is twice as large.
    """
    if init_control not in (ZERO, "grad"):
        raise UserError(f"scaffold(init_control={init_control}) is unknown: use {ZERO} or grad.")
    first = [FirstGradients()] if init_control == "grad" else []
    named = changed(scaffold, control=control, init_control=init_control)
    return algorithm(Scaffold(control), *first, name=f"scaffold({named[2:]})" if named else "scaffold")
