"""Algorithms with personal parameters, and how an unseen client trains its own on the shared ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from apiece.algebra.composition import Algorithm, Alternate, Period, StepSize, algorithm, changed
from apiece.algebra.papers import paper
from apiece.algebra.periods import NEVER
from apiece.algebra.piece import Piece
from apiece.algebra.view import View
from apiece.errors import UserError
from apiece.pieces.fine_tune import ORDER, passes, smallest_batch
from apiece.vector.space import Space


@dataclass(frozen=True)
class Newcomer(Piece):
    """y_i <- y_i - lr grad_y f_i(x, y_i) at the shared x, for `epochs` passes from the initial y_i of an unseen client.

    Collins et al., "Exploiting Shared Representations for Personalized Federated Learning", ICML 2021, on new users; 20
    epochs as in Scott et al., "PeFLL", ICLR 2024, appendix A.2. Stored and sent: nothing. A client that took part
    predicts with its own y_i.
    """

    serves = "newcomers"
    reads = frozenset({"fresh"})

    epochs: int = 20
    batch: int = 32

    def __post_init__(self) -> None:
        if self.epochs < 0 or self.batch < 1:
            raise UserError(f"{self!r} is impossible: give 0 or more epochs, and batches of 1 or more.")

    @classmethod
    def neutral(cls):
        return cls(epochs=0), "the same without it"

    @property
    def smallest_batch(self):
        return smallest_batch(self.batch, self.epochs)

    def draws(self, space: Space):
        return (ORDER,)

    def personal(self, view: View, theta: Tensor):
        if not view.fresh or not self.epochs:
            return theta
        begin = view.with_own(theta)  # an unseen client's own model is the initial one
        own = torch.where(view.shared, 0.0, torch.ones_like(theta) * view.lr)  # not even weight decay moves shared ones
        return view.descend(begin, batches=passes(view, self.epochs, self.batch), lr=own)


def local(epochs: int = Newcomer.epochs, batch: int = Newcomer.batch) -> Algorithm:
    """Every client trains alone and sends nothing; an unseen client trains for `epochs` passes.

    theta_i <- theta_i - lr grad f_i(theta_i), from round to round. Stored: theta_i. Sent: nothing. An unseen client
    takes `epochs` passes of the same steps from the initial model, in batches of `batch` (`Newcomer`).

    Use it as a reference: clients that do worse under another algorithm have no reason to take part in it.
    """
    return algorithm(*_personal("*", epochs, batch), name="local")


@paper("its Algorithms 1 and 2", weighting="samples", optimizer="sgd")
def fedper(personal: str | None = None, epochs: int = Newcomer.epochs, batch: int = Newcomer.batch) -> Algorithm:
    """The head stays with the client; an unseen client trains one for `epochs` passes (Arivazhagan et al. 2019).

    Algorithms 1 and 2, where W_B are the base layers and W_{P_j} client j's personal ones, which train together:
    (W_B, W_{P_j}) <- (W_B, W_{P_j}) - lr grad f_j;   W_B <- sum_j gamma_j W_{B,j}, with the run's weights (the paper's:
    gamma_j = n_j / n). Stored: W_{P_j}. Sent: W_B each way. An unseen client trains a head of its own on W_B, from the
    initial one (`Newcomer`).

    Use it as a simple baseline of personalization where clients' labels differ and the same features serve all.
    """
    return algorithm(*_personal(personal or "head", epochs, batch), name="fedper")


@paper("the authors' code on CIFAR-10", weighting="uniform", optimizer="sgd(momentum=0.5)", lr=0.1)
def lg_fedavg(
    personal: str | int | None = None, epochs: int = Newcomer.epochs, batch: int = Newcomer.batch
) -> Algorithm:
    """The body stays with the client, the head is shared; personal: a pattern or leading layers (Liang et al. 2020).

    Algorithm 1, where l_i is client i's body, which makes local representations, and g the shared head:
    (l_i, g_i) <- (l_i, g_i) - lr grad f_i;   g <- sum_i p_i g_i, without the paper's auxiliary losses on
    representations. Stored: l_i. Sent: g each way. An unseen client trains a body of its own under g, from the initial
    one (`Newcomer`); the paper takes an ensemble of the clients' bodies. The authors' code starts from a trained FedAvg
    model (`--init`), shares the last two layers and weighs clients equally (weighting=uniform).

    Use it where clients' inputs differ rather than their labels: each learns features of its own under one shared head.
    """
    return algorithm(*_personal("body" if personal is None else personal, epochs, batch), name="lg_fedavg")


@paper("the authors' code on EMNIST", weighting="samples", optimizer="sgd", lr=0.01)
def fedsim(
    personal: str | None = None, epochs: int = Newcomer.epochs, batch: int = Newcomer.batch, inner_personal: float = 1.0
) -> Algorithm:
    """Clients train shared and personal parameters together: FedAvg-P with outer steps of 1 (Pillutla et al. 2022).

    FedSim, where u is shared and v_i personal; each step moves both from the same point on the same batch:
    v_i <- v_i - gamma_v grad_v F_i(u_i, v_i);   u_i <- u_i - gamma_u grad_u F_i(u_i, v_i);   u <- sum_i p_i u_i.
    gamma_u is the run's step size and gamma_v = inner_personal gamma_u, for an unseen client too. Stored: v_i. Sent: u
    each way. An unseen client trains a v of its own on u (`Newcomer`).

    Use it as the simplest training of shared and personal parameters at once. Its paper finds `fedalt` slightly better.
    """
    named = "fedsim" if inner_personal == 1.0 else f"fedsim(inner_personal={inner_personal:g})"
    return algorithm(*_personal(personal or "head", epochs, batch, inner_personal), name=named)


@paper("the authors' code on EMNIST", weighting="samples", optimizer="sgd", lr=0.01)
def fedalt(
    personal: str | None = None,
    first: float = 0.5,
    epochs: int = Newcomer.epochs,
    batch: int = Newcomer.batch,
    inner_personal: float = 1.0,
) -> Algorithm:
    """Personal parameters train for `first` steps (below 1: that share), then shared ones (Pillutla et al. 2022).

    FedAlt, where u is shared and v_i personal: v_i <- v_i - gamma_v grad_v F_i(u, v_i) for `first` steps, then
    u_i <- u_i - gamma_u grad_u F_i(u_i, v_i) at the new v_i;   u <- sum_i p_i u_i. Both halves use the run's optimizer
    and share its steps, where the authors' code gives each half as many. gamma_u is the run's step size and
    gamma_v = inner_personal gamma_u. Stored: v_i. Sent: u each way. An unseen client trains its own v on u, with this
    gamma_v (`Newcomer`).

    Use it where part of the model is personal: its paper finds it slightly better than `fedsim`.
    """
    which = personal or "head"
    parts = _personal(which, epochs, batch, inner_personal)
    named = f"fedalt(first={first:g}{changed(fedalt, inner_personal=inner_personal)})"
    return algorithm(*parts, Alternate(which, first), name=named)


@paper("its Algorithm 1", weighting="uniform", optimizer="sgd")
def fedrep(
    head: str | None = None,
    first: float = 5 / 6,
    epochs: int = Newcomer.epochs,
    batch: int = Newcomer.batch,
    inner_personal: float = 1.0,
) -> Algorithm:
    """The head trains for `first` steps (below 1: that share; 5 of 6), then the shared body (Collins et al. 2021).

    Algorithm 1, where phi is the shared representation and h_i client i's head: h_i <- h_i - alpha grad_h f_i(h_i, phi)
    for `first` steps, then phi_i <- phi_i - alpha grad_phi f_i(h_i, phi_i) for the other steps, only one in the paper's
    algorithm (PeFLL's comparison has 5 passes for the head and one for the body, A.2);   phi <- sum_i p_i phi_i, with
    the run's weights (the paper's: weighting=uniform). The head's alpha is inner_personal times the run's step size.
    Stored: h_i. Sent: phi each way. An unseen client trains a head of its own on phi, with the same alpha (`Newcomer`).

    Use it where clients have few classes each and one representation serves all: the head fits before the body moves.
    """
    named = f"fedrep(first={first:g}{changed(fedrep, inner_personal=inner_personal)})"
    return replace(fedalt(head, first, epochs, batch, inner_personal), name=named)


def _personal(which: str | int, epochs: int, batch: int, inner: float = 1.0) -> list[Any]:
    sizes = [StepSize(which, inner)] if inner != 1.0 else []
    return [Period(which, NEVER), Newcomer(epochs, batch), *sizes]
