"""APFL: a client predicts with a mixture of the global model and its own model, and may learn the mixture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from apiece.algebra.composition import Algorithm, algorithm
from apiece.algebra.papers import paper
from apiece.algebra.piece import Piece
from apiece.algebra.view import View
from apiece.errors import UserError
from apiece.pieces.ditto import TWO_MODELS

TURNS = {"adaptive": 1.0, "fixed": 0.0}  # how many steps of a round learn the share


class Part(NamedTuple):
    """A client's own part of the mixture."""

    model: Tensor  # [1, D]: a leaf [D] would follow the synchronization of its group
    share: Tensor  # []


class Going(NamedTuple):
    """A client's part of the mixture while the client trains."""

    model: Tensor
    share: Tensor
    turns: Tensor  # how many steps of the share are left


@dataclass(frozen=True)
class Mixture(Piece):
    """w_i <- w_i - lr g(w_i);   v_i <- v_i - lr a_i g(m_i);   a_i <- a_i - lr <v_i - w_i, g(m_i)>, within [0, 1],

    at m_i = a_i v_i + (1 - a_i) w_i. All three steps use the same point and batch. a_i moves in the first step of a
    round where `rule` is adaptive, and never where it is fixed. Deng et al., "Adaptive Personalized Federated
    Learning", 2020, Algorithm 1, and its section on an adaptive alpha. `alpha` is the initial a_i; v_i starts at the
    initial model and takes plain SGD steps. One code of the authors mixes outputs instead, takes the steps in sequence
    and adds 0.02 a_i to the gradient of a_i. Statistics of normalization are the global model's. Stored: v_i and a_i.
    Sent: w_i alone. The client predicts with a_i v_i + (1 - a_i) global; an unseen client uses the global model.
    """

    serves = "members"
    excludes = {"MoreauEnvelope": TWO_MODELS}

    alpha: float = 0.5
    rule: str = "adaptive"

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1 or self.rule not in TURNS:
            raise UserError(
                f"apfl(alpha={self.alpha:g}, rule={self.rule}) is impossible: give alpha from 0 to 1, "
                f"rule {' or '.join(TURNS)}."
            )

    @classmethod
    def neutral(cls):
        return cls(0.0, "fixed"), "fedavg"

    def client_memory(self, theta: Tensor):
        return Part(theta[None], theta.new_full((), self.alpha))

    def correct(self, view: View):
        def rule(here: Going, g: Tensor, theta: Tensor, batch):
            apart = here.model - theta
            mixed = view.task.gradient(theta + here.share * apart, batch)
            share = (here.share - here.turns * (view.lr * apart * mixed).sum()).clamp(0.0, 1.0)
            return Going(here.model - view.lr * here.share * mixed, share, torch.zeros_like(here.turns)), g

        own = view.client
        return Going(own.model[0], own.share, torch.full_like(own.share, TURNS[self.rule])), rule

    def remember(self, view: View):
        return Part(view.scratch.model[None], view.scratch.share)

    def personal(self, view: View, theta: Tensor):
        mixed = theta + view.client.share * (view.client.model[0] - theta)
        return torch.where(torch.as_tensor(view.fresh), theta, mixed)


@paper("its Algorithm 1", weighting="uniform", optimizer="sgd")
def apfl(alpha: float = Mixture.alpha, rule: str = Mixture.rule) -> Algorithm:
    """A client mixes the global model with alpha of its own, learnt or not: rule=adaptive|fixed (Deng et al. 2020).

    Use it where some clients gain from sharing and others do not: each learns how much of the shared model it mixes in.
    Local computation doubles.
    """
    return algorithm(Mixture(alpha, rule), name=f"apfl(alpha={alpha:g})")
