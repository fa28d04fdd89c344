"""The named optimisers: `--optimizer` names a client's, `--server` the server's. Light: nothing heavy is imported
until one is made.
"""

from __future__ import annotations

from typing import Any

__all__ = ["adagrad", "adam", "adamw", "average", "momentum", "sgd", "yogi"]
CLIENTS, SERVERS = ("adamw", "sgd"), ("adagrad", "adam", "average", "momentum", "yogi")


def sgd(momentum: float = 0.0, weight_decay: float = 0.0) -> Any:
    """A client's: stochastic gradient descent."""
    from apiece.algebra.optim import Sgd

    return Sgd(momentum, weight_decay)


def adamw(beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 0.01) -> Any:
    """A client's: Adam with decoupled weight decay (Loshchilov & Hutter 2019)."""
    from apiece.algebra.optim import AdamW

    return AdamW(beta1, beta2, epsilon, weight_decay)


def average(lr: float = 1.0) -> Any:
    """The server's: a step against the mean of sent - kept; lr=1 is averaging (McMahan et al. 2017)."""
    from apiece.algebra.server_optim import Descent

    return Descent(lr)


def momentum(beta: float = 0.9, lr: float = 1.0) -> Any:
    """The server's: FedAvgM (Hsu et al. 2019)."""
    from apiece.algebra.server_optim import Momentum

    return Momentum(beta, lr)


def adam(
    lr: float = 0.1, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3, initial: float | None = None
) -> Any:
    """The server's: FedAdam (Reddi et al. 2021)."""
    from apiece.algebra.server_optim import Adam

    return Adam(lr, beta1, beta2, tau, initial)


def yogi(
    lr: float = 0.1, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3, initial: float | None = None
) -> Any:
    """The server's: FedYogi (Reddi et al. 2021)."""
    from apiece.algebra.server_optim import Yogi

    return Yogi(lr, beta1, beta2, tau, initial)


def adagrad(lr: float = 0.1, beta1: float = 0.0, tau: float = 1e-3, initial: float | None = None) -> Any:
    """The server's: FedAdagrad (Reddi et al. 2021)."""
    from apiece.algebra.server_optim import Adagrad

    return Adagrad(lr=lr, beta1=beta1, tau=tau, initial=initial)
