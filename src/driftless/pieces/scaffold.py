"""SCAFFOLD: control variates cancel what a client's gradient has of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from driftless.piece import Piece, Uniform, View


class Control(NamedTuple):
    variate: Tensor


@dataclass(frozen=True)
class Scaffold(Piece):
    """g <- g - c_i + c;   c_i <- the client's mean gradient;   c <- c + (S/N) mean(c_i' - c_i).

    Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020, Algorithm 1.
    With plain SGD the mean gradient is option II, c_i - c + (start - end) / (K lr) (line 12); it stays right under
    momentum, weight decay, clipping and a moving step size, where the difference does not. c's mean is over all N
    clients: S answered. Stored: c_i [D] on a client, c on the server. Sent: c down and c_i' - c_i up, beside the model
    each way. A client never seen: the global model.
    """

    reads = frozenset({"gradient"})

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
        return Uniform(view.gradient - view.client.variate)

    def remember(self, view: View):
        return Control(view.gradient)

    def learn(self, memory: Control, g: Tensor, report: Uniform, share: float):
        return g, Control(memory.variate + share * report.x)
