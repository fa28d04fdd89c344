"""The server's last two vectors, averaged where the global model is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from apiece.algebra.piece import Piece


class Previous(NamedTuple):
    """The server's vector before its last step."""

    vector: Tensor


@dataclass(frozen=True)
class AveragedIterates(Piece):
    """w = (w_t + w_{t-1}) / 2 is measured and saved, w_t being the server's vector after round t; training continues
    from w_t.

    Jhunjhunwala et al., "FedExP: Speeding up Federated Averaging via Extrapolation", ICLR 2023, which reports this mean
    because the last vector oscillates around an optimum; w_0 is the initial model, which the authors' code leaves out
    of the first mean. A group with a period has the mean of its last two synchronizations; statistics of normalization
    are the last ones. Stored: w_{t-1} [D], on the server, and nothing on a client. Sent: nothing. An unseen client uses
    the global model.
    """

    @classmethod
    def neutral(cls):
        return "it leaves training bitwise as it is, but another vector is measured in every round"

    def server_memory(self, theta: Tensor):
        return Previous(theta)

    def settle(self, memory: Previous, before: Tensor, after: Tensor):
        return Previous(before)

    def evaluate(self, memory: Previous, theta: Tensor):
        return (theta + memory.vector) / 2
