"""FedAvg-P and Scaffold-P, and their outer step on personal parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from apiece.algebra.composition import Algorithm, Period, Server, StepSize, algorithm
from apiece.algebra.papers import paper
from apiece.algebra.periods import NEVER
from apiece.algebra.piece import Piece
from apiece.algebra.server_optim import Descent
from apiece.algebra.view import View
from apiece.errors import UserError
from apiece.pieces.scaffold import ZERO, Scaffold, scaffold


@dataclass(frozen=True)
class OuterStep(Piece):
    """y_i <- y_i + size (y_K - y_i) for personal parameters; shared ones stay as they are.

    Chen et al., "Sharper Convergence Guarantees for Federated Learning with Partial Model Personalization", 2023,
    Algorithms 1 and 2, line 9. Size 1 keeps the end of training (FedSim). Stored: y_i, which the client keeps anyway.
    Sent: nothing. An unseen client is served as without this piece.
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
        own = view.with_own(theta)
        return torch.where(view.shared, theta, own + self.size * (theta - own))


@paper("its Algorithm 1", weighting="uniform", optimizer="sgd")
def fedavg_p(
    personal: str | None = None,
    outer_shared: float = Descent.lr,
    outer_personal: float = OuterStep.size,
    inner_personal: float = 1.0,
) -> Algorithm:
    """Shared and personal parameters with inner and outer steps; inner_personal is a factor of the step size (Chen et
    al. 2023).

    Algorithm 1, where x is shared, y_i personal, gamma the inner steps, eta the outer ones, and S the m clients asked:

        x_{k+1,i} <- x_{k,i} - gamma_x grad_x F_i(x_{k,i}, y_{k,i})     line 6, K times from x_{0,i} = x, y_{0,i} = y_i
        y_{k+1,i} <- y_{k,i} - gamma_y grad_y F_i(x_{k,i}, y_{k,i})     line 7, at the same point and batch
        y_i <- y_i + eta_y (y_{K,i} - y_i)                              line 9
        x <- x + (eta_x / m) sum_{i in S} (x_{K,i} - x)                 line 11

    gamma_x is the run's step size and gamma_y = inner_personal gamma_x, eta_x is outer_shared and eta_y outer_personal;
    line 11 has the run's weights (the paper's: weighting=uniform). Stored: y_i. Sent: x down and x_{K,i} up. An unseen
    client is measured with x and the mean of all y_i; `apiece personalize` serves it x and the initial y, which a
    round's local steps then train.

    Use it where each client should have parameters of its own, and the step sizes of shared and personal parameters are
    to be set apart.
    """
    which = personal or "head"
    parts: list[Any] = [Period(which, NEVER)]
    if inner_personal != 1.0:
        parts.append(StepSize(which, inner_personal))
    if outer_personal != 1.0:
        parts.append(OuterStep(outer_personal))
    if outer_shared != 1.0:
        parts.append(Server(Descent(outer_shared)))
    return algorithm(*parts, name="fedavg_p")


@paper("its Algorithm 2", weighting="uniform", optimizer="sgd")
def scaffold_p(
    personal: str | None = None,
    outer_shared: float = Descent.lr,
    outer_personal: float = OuterStep.size,
    inner_personal: float = 1.0,
    control: str = Scaffold.control,
    init_control: str = ZERO,
) -> Algorithm:
    """FedAvg-P with control variates on the shared parameters: init_control=zero|grad (Chen et al. 2023).

    Algorithm 2: lines 7, 9 and the mean of x in line 12 are those of Algorithm 1 (`fedavg_p`); the others are

        x_{k+1,i} <- x_{k,i} - gamma_x (grad_x F_i(x_{k,i}, y_{k,i}) - c_i + c)               line 6
        c_i <- (1/K) sum_k grad_x F_i(x_{k,i}, y_{k,i})                                       line 10
        c <- c + (1/N) sum_{i in S} (c_i' - c_i)                                              line 13

    where c_i' is the new c_i and N counts all clients; the variates of y stay 0. init_control=zero: c_i and c start at
    0. init_control=grad: they start as in the paper's proofs, as we read them, c_i = grad_x f_i(x, y_i) and
    c = mean_i c_i, from a first round that asks every client and moves no model (`FirstGradients`).
    control=difference: line 10 as SCAFFOLD's line 12 (`Scaffold`). The text at hand lacks formulas: lines 9 and 10 are
    as we read them. Stored: y_i, c_i, and c on the server. Sent: x and c down, x_{K,i} and c_i' - c_i up. An unseen
    client is served as under `fedavg_p`.

    Use it in place of `fedavg_p` where the shared parameters drift: many local steps on clients that differ, each of
    which is asked often. Messages are nearly twice as large.
    """
    shared = scaffold(control, init_control)
    both = shared + fedavg_p(personal, outer_shared, outer_personal, inner_personal)
    return replace(both, name=shared.name.replace("scaffold", "scaffold_p"))
