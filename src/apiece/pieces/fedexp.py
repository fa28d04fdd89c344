"""FedExP: the server's step grows with the disagreement of the clients' updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from apiece.algebra.composition import Algorithm, algorithm
from apiece.algebra.message import Message, Weighted
from apiece.algebra.papers import paper
from apiece.algebra.piece import Piece
from apiece.algebra.view import View
from apiece.errors import UserError
from apiece.pieces.iterates import AveragedIterates


class Square(NamedTuple):
    norm: Weighted


@dataclass(frozen=True)
class FedExP(Piece):
    """w <- w - eta mean(d_i);   eta = max(1, sum p_i ||d_i||^2 / (2 ||mean d_i||^2 + 2 epsilon)), d_i = sent - kept_i.

    Jhunjhunwala et al., "FedExP: Speeding up Federated Averaging via Extrapolation", ICLR 2023, equation (8) and
    Algorithm 1. d_i is the client's message, restricted to the parameters that the round synchronizes. The paper
    reports the mean of the last two vectors (`AveragedIterates`); the authors' code multiplies epsilon by the number of
    clients asked and lets it decay. The log has eta as `FedExP.step_size`. Stored: nothing. Sent: one number beside the
    model. An unseen client uses the global model.
    """

    runs_last = True

    epsilon: float = 1e-3

    def __post_init__(self) -> None:
        if self.epsilon <= 0:
            raise UserError(f"fedexp(epsilon={self.epsilon:g}) could divide by zero: give more than 0.")

    @classmethod
    def neutral(cls):
        return cls(float("inf")), "fedavg"

    def report(self, view: View):
        return Square(Weighted(torch.zeros_like(view.end.sum())))  # the message is first known at `upload`

    def upload(self, view: View, message: Message):
        mine = Square(Weighted(message.delta @ message.delta))
        return message._replace(reports=tuple(mine if isinstance(r, Square) else r for r in message.reports))

    def learn(self, memory: tuple, g: Tensor, report: Square, share: float):
        return g * self._step_size(g, report), memory

    def log(self, memory: tuple, g: Tensor, report: Square, share: float):
        return {"step_size": self._step_size(g, report)}

    def _step_size(self, g: Tensor, report: Square) -> Tensor:
        return (report.norm.x / (2 * (g @ g + self.epsilon))).clamp(min=1.0)


@paper(
    "the authors' code on CIFAR-10",
    weighting="samples",
    optimizer="sgd(weight_decay=0.0001)",
    lr=0.01,
    schedule="exponential(0.998)",
    clip=10.0,
)
def fedexp(epsilon: float = FedExP.epsilon, evaluate: str = "last") -> Algorithm:
    """The server extrapolates where updates disagree; evaluate=last measures its last model, evaluate=average the mean
    of the last two (Jhunjhunwala et al. 2023).

    Use it where clients' updates point in different directions and FedAvg moves slowly: the server lengthens its step
    by itself, and only epsilon is to be set.
    """
    measured = {"last": (), "average": (AveragedIterates(),)}
    if evaluate not in measured:
        raise UserError(f"fedexp(evaluate={evaluate}) is unknown: use {' or '.join(measured)}.")
    named = f"fedexp(evaluate={evaluate})" if measured[evaluate] else "fedexp"
    return algorithm(FedExP(epsilon), *measured[evaluate], name=named)
