"""Optimizers on vectors: the clients'.

An optimizer is a value: `init(theta) -> state`, `step(gradient, theta, state, lr) -> (theta, state)`. A state is a
named tuple of tensors; its vectors [D] are masked with the groups they belong to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from apiece.errors import UserError
from apiece.system.device import scalar
from apiece.system.typed import norm

Rate = float | Tensor
DECAY = 0.01  # AdamW's, where none is given


class Optimizer(Protocol):
    """What a client's or the server's optimizer offers."""

    def init(self, theta: Tensor) -> Any: ...

    def step(self, gradient: Tensor, theta: Tensor, state: Any, lr: Rate) -> tuple[Tensor, Any]: ...


class Velocity(NamedTuple):
    momentum: Tensor


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent: m <- momentum m + g + weight_decay theta;  theta <- theta - lr m.

    Args:
        momentum: of the velocity m [D], in [0, 1).
        weight_decay: how much of theta is added to the gradient.

    >>> import torch
    >>> theta, state = torch.tensor([1.0]), Sgd().init(torch.tensor([1.0]))
    >>> Sgd().step(torch.tensor([2.0]), theta, state, 0.1)[0]
    tensor([0.8000])
    """

    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.momentum < 1 and self.weight_decay >= 0):
            raise UserError(f"{self!r}: momentum lies in [0, 1) and weight_decay is not negative.")

    def init(self, theta: Tensor) -> Any:
        return Velocity(torch.zeros_like(theta)) if self.momentum else ()

    def step(self, gradient: Tensor, theta: Tensor, state: Any, lr: Rate) -> tuple[Tensor, Any]:
        if self.weight_decay:
            gradient = gradient + self.weight_decay * theta
        if self.momentum:
            gradient = self.momentum * state.momentum + gradient
            state = Velocity(gradient)
        if isinstance(lr, Tensor):
            return torch.addcmul(theta, lr, gradient, value=-1), state  # bitwise as below, a step size a parameter
        return torch.add(theta, gradient, alpha=-lr), state  # one pass over the vectors, and one made


class Moments(NamedTuple):
    first: Tensor
    second: Tensor
    steps: Tensor  # [], or [D] where groups take different numbers of steps


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019, Algorithm 2), bias-corrected."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float | Tensor = DECAY  # a number, or [D]

    def __post_init__(self) -> None:
        betas = 0 <= self.beta1 < 1 and 0 <= self.beta2 < 1
        if not (betas and self.epsilon > 0) or (not isinstance(self.weight_decay, Tensor) and self.weight_decay < 0):
            raise UserError(f"{self!r}: betas lie in [0, 1), epsilon is above 0 and weight_decay is not negative.")

    def init(self, theta: Tensor) -> Moments:
        return Moments(torch.zeros_like(theta), torch.zeros_like(theta), torch.zeros_like(theta))

    def step(self, gradient: Tensor, theta: Tensor, state: Moments, lr: Rate) -> tuple[Tensor, Moments]:
        steps = state.steps + 1
        first = self.beta1 * state.first + (1 - self.beta1) * gradient
        second = self.beta2 * state.second + (1 - self.beta2) * gradient * gradient
        scale = (second / (1 - self.beta2**steps)).sqrt() + self.epsilon
        move = first / (1 - self.beta1**steps) / scale
        return theta - lr * (move + self.weight_decay * theta), Moments(first, second, steps)


@dataclass(frozen=True)
class AdamWTogether(AdamW):
    """AdamW of parameters that all take the same steps, so that one count serves them: a third less time."""

    def init(self, theta: Tensor) -> Moments:
        return super().init(theta)._replace(steps=theta.new_zeros(()))


def adamw(
    beta1: float = AdamW.beta1, beta2: float = AdamW.beta2, epsilon: float = AdamW.epsilon, weight_decay: float = DECAY
) -> AdamW:
    """AdamW with one weight decay for all parameters."""
    return AdamW(beta1, beta2, epsilon, weight_decay)


def adam(beta1: float = AdamW.beta1, beta2: float = AdamW.beta2, epsilon: float = AdamW.epsilon) -> AdamW:
    """Adam, without weight decay (Kingma and Ba 2015)."""
    return AdamW(beta1, beta2, epsilon, 0.0)


@dataclass(frozen=True)
class Freeze:
    """Another optimizer that moves `first` alone for `count` steps, then everything else alone (FedRep, FedAlt).

    theta_j <- theta_j - lr m_j in local step k = 0, 1, ... where first_j = (k < count), m by the other; else it stays.
    A count between 0 and 1 is that share of the client's own steps, rounded. The frozen part keeps its momentum and is
    not decayed. `first` is a bool vector [D].
    """

    optimizer: Optimizer
    first: Tensor
    count: float

    def init(self, theta: Tensor) -> Any:
        return self.optimizer.init(theta)

    def moves(self, step: int | Tensor, steps: int | Tensor) -> Tensor:
        """Which parameters move at local step number `step` of a client's `steps`. Bool [D]."""
        count: float | Tensor = self.count
        if 0 < self.count < 1:
            count = torch.round(scalar(steps, self.first, torch.float64) * self.count)
        early = step < count
        if isinstance(early, bool):
            return self.first if early else ~self.first
        return torch.where(early, self.first, ~self.first)

    def step(self, gradient: Tensor, theta: Tensor, state: Any, lr: Rate) -> tuple[Tensor, Any]:
        return self.optimizer.step(gradient, theta, state, lr)


@dataclass(frozen=True)
class Moving:
    """Another optimizer that moves these parameters, a bool vector [D], and leaves the rest with its state as it is."""

    optimizer: Optimizer
    which: Tensor

    def init(self, theta: Tensor) -> Any:
        return self.optimizer.init(theta)

    def moves(self, step: int | Tensor, steps: int | Tensor) -> Tensor:
        """Which parameters move at local step number `step` of a client's `steps`. Bool [D]."""
        inner = getattr(self.optimizer, "moves", None)
        return self.which if inner is None else self.which & inner(step, steps)

    def step(self, gradient: Tensor, theta: Tensor, state: Any, lr: Rate) -> tuple[Tensor, Any]:
        return self.optimizer.step(gradient, theta, state, lr)


def clip(gradient: Tensor, bound: float) -> Tensor:
    """The gradient scaled down to at most this Euclidean norm: g min(1, bound / ||g||)."""
    return gradient * torch.clamp(bound / norm(gradient).clamp(min=1e-12), max=1.0)


@dataclass(frozen=True)
class OnServer:
    """A client's optimizer as the server's, with a step size of its own and the gradient clipped to this norm first.

    Args:
        optimizer: a client's, such as `Sgd(momentum=0.9)`.
        lr: its step size, whatever the run's.
        norm: the largest norm of the gradient; longer ones are scaled to it.

    >>> OnServer(Sgd(momentum=0.9), lr=0.01, norm=1.0).lr
    0.01
    """

    optimizer: Optimizer
    lr: float
    norm: float | None = None

    def __post_init__(self) -> None:
        if self.lr < 0 or (self.norm is not None and self.norm <= 0):
            raise UserError(
                f"the server's own optimizer needs lr of 0 or more and clip above 0: {self.lr}, {self.norm}."
            )

    def init(self, theta: Tensor) -> Any:
        return self.optimizer.init(theta)

    def step(self, gradient: Tensor, theta: Tensor, state: Any, lr: Rate = 1.0) -> tuple[Tensor, Any]:
        g = gradient if self.norm is None else clip(gradient, self.norm)
        return self.optimizer.step(g, theta, state, self.lr * lr)
