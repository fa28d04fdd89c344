"""FedDyn: a linear and a quadratic term make the clients' optima agree with the pooled one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from apiece.algebra.composition import Algorithm, algorithm
from apiece.algebra.message import Uniform
from apiece.algebra.papers import paper
from apiece.algebra.piece import Piece
from apiece.algebra.view import View
from apiece.errors import UserError


class Linear(NamedTuple):
    term: Tensor


@dataclass(frozen=True)
class FedDyn(Piece):
    """g <- g - h_i + a (theta - start);   h_i <- h_i - a (end - start);   h <- h - a (S/N) mean(end - start);
    w <- w - g - h/a.

    Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021, Algorithm 1. In the last line, w - g
    is the mean of the clients' ends. a is alpha; the authors' code divides it by n_i N / n for a client with n_i of n
    samples. h is the mean of h_i over all N clients, absent ones too, whatever the models' weights. `mean="clients"`:
    each client sends end - start beside the model [D], unless the mean of the models gives their mean
    (`View.mean_is_uniform`): the paper's cost in the paper's setting. `mean="model"`: that mean is used everywhere and
    nothing is sent twice; right where models are averaged uniformly and no piece moves the start. Stored: h_i [D] on a
    client, h on the server. Sent: no more than that, and nothing down. An unseen client uses the global model.
    """

    alpha: float = 0.1
    mean: str = "clients"

    def __post_init__(self) -> None:
        if self.alpha <= 0:
            raise UserError(f"feddyn(alpha={self.alpha:g}) divides by alpha: give more than 0.")
        if self.mean not in ("clients", "model"):
            raise UserError(f"feddyn(mean={self.mean}) is unknown: use clients or model.")

    @classmethod
    def neutral(cls):
        return "the server divides by alpha: no value of it leaves the corrections out"

    def server_memory(self, theta: Tensor):
        return Linear(torch.zeros_like(theta))

    def client_memory(self, theta: Tensor):
        return Linear(torch.zeros_like(theta))

    def correct(self, view: View):
        return (), lambda s, g, theta, batch: (s, g - view.client.term + self.alpha * (theta - view.start))

    def report(self, view: View):
        return () if self.mean == "model" or view.mean_is_uniform else Uniform(view.start - view.end)

    def remember(self, view: View):
        return Linear(view.client.term + self.alpha * (view.start - view.end))

    def learn(self, memory: Linear, g: Tensor, report: Any, share: float):
        h = memory.term + self.alpha * share * (report.x if report else g)
        return g + h / self.alpha, Linear(h)


@paper("the authors' code on CIFAR-10", weighting="uniform", optimizer="sgd(weight_decay=0.001)", lr=0.1, clip=10.0)
def feddyn(alpha: float = FedDyn.alpha, mean: str = FedDyn.mean) -> Algorithm:
    """Corrections make the clients' optima agree with the pooled one: mean=clients|model (Acar et al. 2021); alpha=0.1
    is from FedInit's code, the authors' code has 0.01.

    Use it in long runs where clients differ and each is asked regularly: it settles where the pooled loss is lowest.
    Where few clients are asked, clip gradients or lower the step size, since its state on the server can grow.
    """
    return algorithm(FedDyn(alpha, mean), name=f"feddyn(alpha={alpha:g})")
