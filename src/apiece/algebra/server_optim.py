"""The server's optimizers: a step against the aggregated pseudo-gradient g = mean(sent - kept)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from apiece.algebra.composition import Algorithm, Server, algorithm
from apiece.algebra.optim import Optimizer, Rate, Velocity
from apiece.algebra.papers import paper
from apiece.errors import UserError

SETTLED = 1000  # steps after which a momentum of up to 0.99 has settled


@dataclass(frozen=True)
class Descent:
    """theta <- theta - lr g: with lr 1 and the mean of sent - kept, exactly averaging.

    McMahan et al. 2017, FederatedAveraging: w <- sum_k (n_k / n) w_k. Stored: nothing. Sent: nothing beside the model.
    An unseen client uses the global model.

    >>> Descent(0.5).step(torch.tensor([2.0, -4.0]), theta=torch.tensor([1.0, 1.0]), state=())
    (tensor([0., 3.]), ())
    """

    lr: float = 1.0

    def __post_init__(self) -> None:
        if self.lr <= 0:
            raise UserError(f"{self!r}: lr is above 0.")

    def neutral(self) -> tuple[Descent, str]:
        return Descent(), "fedavg"

    def init(self, theta: Tensor) -> Any:
        return ()

    def step(self, gradient: Tensor, theta: Tensor, state: Any, lr: Rate = 1.0) -> tuple[Tensor, Any]:
        return theta - (self.lr * lr) * gradient, state


def gain(server: Optimizer) -> float:
    """How many times a small update the server's model moves a round, if all rounds' mean updates are the same.

    A program's own optimizer is not tried, as it may count its steps or know the vector's size: it is taken to average.

    >>> round(gain(Momentum(beta=0.9)), 3), round(gain(Adam(lr=0.1, tau=0.01, initial=0.0)), 2)
    (10.0, 10.0)
    """
    if not type(getattr(server, "optimizer", server)).__module__.startswith("apiece."):
        return 1.0
    small = torch.tensor([1e-6], dtype=torch.float64)
    before = theta = torch.zeros_like(small)
    state = server.init(theta)
    for _ in range(SETTLED):
        before = theta
        theta, state = server.step(-small, theta, state, 1.0)
    return float((theta - before) / small)


@dataclass(frozen=True)
class Momentum:
    """FedAvgM (Hsu et al. 2019): v <- beta v + g;  theta <- theta - lr v.

    v is 0 at first; beta is 0.9 in FedExP's code, and 0.1 in FedCOG's appendix A.2.2. Stored: v [D], on the server, and
    nothing on a client. Sent: nothing beside the model. An unseen client uses the global model. All this holds for the
    other forms of it, below.
    """

    beta: float = 0.9
    lr: float = 1.0

    def __post_init__(self) -> None:
        if not (0 <= self.beta < 1 and self.lr > 0):
            raise UserError(f"{self!r}: beta lies in [0, 1) and lr is above 0.")

    def neutral(self) -> tuple[Momentum, str]:
        return type(self)(beta=0.0), "fedavg"

    def init(self, theta: Tensor) -> Any:
        return Velocity(torch.zeros_like(theta))

    def move(self, gradient: Tensor, state: Any) -> tuple[Tensor, Any]:
        """(the direction of the step, the state after it)."""
        velocity = self.beta * state.momentum + gradient
        return velocity, Velocity(velocity)

    def step(self, gradient: Tensor, theta: Tensor, state: Any, lr: Rate = 1.0) -> tuple[Tensor, Any]:
        direction, state = self.move(gradient, state)
        return theta - (self.lr * lr) * direction, state


@dataclass(frozen=True)
class AveragedMomentum(Momentum):
    """FedAvgM as a moving average (MOON's code): v <- beta v + (1 - beta) g;  theta <- theta - lr v."""

    def move(self, gradient: Tensor, state: Velocity) -> tuple[Tensor, Velocity]:
        return super().move((1 - self.beta) * gradient, state)


class Scaled(NamedTuple):
    momentum: Tensor
    divisor: Tensor  # of the next step: 1, then 1 + beta


@dataclass(frozen=True)
class NormalizedMomentum(Momentum):
    """FedAvgM as in FedCOG's code: v <- beta v + g;  theta <- theta - lr v, from the second step lr v / (1 + beta).

    Stored: the divisor of the next step too, on the server.
    """

    def init(self, theta: Tensor) -> Scaled:
        return Scaled(torch.zeros_like(theta), torch.ones_like(theta))

    def move(self, gradient: Tensor, state: Scaled) -> tuple[Tensor, Scaled]:
        velocity = super().move(gradient, state)[0]
        return velocity / state.divisor, Scaled(velocity, torch.full_like(state.divisor, 1 + self.beta))


@dataclass(frozen=True)
class Nesterov(Momentum):
    """FedAvgM looking ahead: v <- beta v + g;  theta <- theta - lr (g + beta v)."""

    def move(self, gradient: Tensor, state: Velocity) -> tuple[Tensor, Velocity]:
        velocity, state = super().move(gradient, state)
        return gradient + self.beta * velocity, state


class Adaptive(NamedTuple):
    first: Tensor
    second: Tensor


@dataclass(frozen=True)
class _AdaptiveServer:
    """Reddi et al. 2021, Algorithm 2: m <- b1 m + (1 - b1) g;  v by rule;  theta <- theta - lr m / (sqrt(v) + tau).

    m is 0 at first and v `initial`; neither is corrected for it. In the paper's symbols g is -Delta_t, and eta is lr.
    FedInit's paper has FedAdam with lr=0.1, its code also tau=0.01 and initial=0.
    Stored: m and v [D], on the server, and nothing on a client. Sent: nothing beside the model. An unseen client
    uses the global model.
    """

    lr: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    initial: float | None = None  # v at the start: tau squared where none is given, the least that the paper allows

    def __post_init__(self) -> None:
        betas = 0 <= self.beta1 < 1 and 0 <= self.beta2 < 1
        if not (betas and min(self.lr, self.tau) > 0 and (self.initial or 0.0) >= 0):
            raise UserError(f"{self!r}: betas lie in [0, 1), lr and tau are above 0, and initial is not negative.")

    def neutral(self) -> str:
        return "its step is divided by the root of v in every coordinate: no value averages"

    def init(self, theta: Tensor) -> Adaptive:
        return Adaptive(
            torch.zeros_like(theta), torch.full_like(theta, self.tau**2 if self.initial is None else self.initial)
        )

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        raise NotImplementedError

    def step(self, gradient: Tensor, theta: Tensor, state: Adaptive, lr: Rate = 1.0) -> tuple[Tensor, Adaptive]:
        first = self.beta1 * state.first + (1 - self.beta1) * gradient
        second = self.second(state.second, gradient * gradient)
        return theta - (self.lr * lr) * first / (second.sqrt() + self.tau), Adaptive(first, second)


@dataclass(frozen=True)
class Adam(_AdaptiveServer):
    """FedAdam: v <- b2 v + (1 - b2) g^2."""

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        return self.beta2 * v + (1 - self.beta2) * square


@dataclass(frozen=True)
class Yogi(_AdaptiveServer):
    """FedYogi: v <- v - (1 - b2) g^2 sign(v - g^2)."""

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        return v - (1 - self.beta2) * square * torch.sign(v - square)


@dataclass(frozen=True)
class Adagrad(_AdaptiveServer):
    """FedAdagrad: v <- v + g^2, without momentum unless beta1 is given."""

    beta1: float = 0.0

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        return v + square


def adagrad(
    lr: float = Adagrad.lr,
    beta1: float = Adagrad.beta1,
    tau: float = Adagrad.tau,
    initial: float | None = Adagrad.initial,
) -> Adagrad:
    """FedAdagrad, which has no second decay (Reddi et al. 2021)."""
    return Adagrad(lr=lr, beta1=beta1, tau=tau, initial=initial)


@paper("its equation for FedAvgM", weighting="samples", optimizer="sgd")
def fedavgm(beta: float = Momentum.beta, lr: float = Momentum.lr, form: str = "hsu") -> Algorithm:
    """Momentum on the server (Hsu et al. 2019), or another code's form of it: form=hsu|mean|normalized|nesterov|exp.

    Use it where the mean update is noisy from round to round, as in small cohorts of clients that differ. With beta=0.9
    the steps add up to ten times FedAvg's, so lr may have to be smaller.
    """
    forms = {
        "hsu": Momentum,
        "mean": AveragedMomentum,
        "normalized": NormalizedMomentum,
        "nesterov": Nesterov,
        "exp": Momentum,  # FedExP's code, d <- g + 0.9 d, is Hsu's
    }
    if form not in forms:
        raise UserError(f"fedavgm(form={form}) is unknown: use {', '.join(forms)}.")
    named = "" if form == "hsu" else f", form={form}"
    return algorithm(Server(forms[form](beta, lr)), name=f"fedavgm(beta={beta:g}{named})")


@paper("its Algorithm 2", weighting="uniform", optimizer="sgd")
def fedadam(
    lr: float = Adam.lr,
    beta1: float = Adam.beta1,
    beta2: float = Adam.beta2,
    tau: float = Adam.tau,
    initial: float | None = Adam.initial,
) -> Algorithm:
    """Adam on the server, not bias-corrected; initial: its second moment at first, tau squared (Reddi et al. 2021).

    Use it where gradients of different parameters have very different sizes, as in text models. Its lr has to be
    searched for.
    """
    return algorithm(Server(Adam(lr, beta1, beta2, tau, initial)), name=f"fedadam(lr={lr:g})")


@paper("its Algorithm 2", weighting="uniform", optimizer="sgd")
def fedyogi(
    lr: float = Yogi.lr,
    beta1: float = Yogi.beta1,
    beta2: float = Yogi.beta2,
    tau: float = Yogi.tau,
    initial: float | None = Yogi.initial,
) -> Algorithm:
    """Yogi on the server: a second moment that moves additively (Reddi et al. 2021).

    Use it like `fedadam`, where the second moment should not grow at once after one large update. Its lr has to be
    searched for.
    """
    return algorithm(Server(Yogi(lr, beta1, beta2, tau, initial)), name=f"fedyogi(lr={lr:g})")


@paper("its Algorithm 2", weighting="uniform", optimizer="sgd")
def fedadagrad(
    lr: float = Adagrad.lr,
    beta1: float = Adagrad.beta1,
    tau: float = Adagrad.tau,
    initial: float | None = Adagrad.initial,
) -> Algorithm:
    """Adagrad on the server: a second moment that is summed (Reddi et al. 2021).

    Use it like `fedadam`, in short runs with sparse updates: its steps only become shorter.
    """
    return algorithm(Server(adagrad(lr, beta1, tau, initial)), name=f"fedadagrad(lr={lr:g})")
