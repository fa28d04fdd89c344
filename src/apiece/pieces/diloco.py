"""DiLoCo and Streaming DiLoCo: periods, an outer step with Nesterov's momentum, and inner optimizers that go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from apiece.algebra.composition import Algorithm, Period, Server, algorithm, changed
from apiece.algebra.papers import paper
from apiece.algebra.piece import Piece
from apiece.algebra.server_optim import Momentum, Nesterov
from apiece.algebra.view import View
from apiece.errors import UserError
from apiece.vector.groups import EVERYTHING

OUTER = 0.7  # the outer step size
ORDERS = ("strided", "sequential")
MOST = 1000  # fragments: no model has as many groups of layers


@dataclass(frozen=True)
class InnerState(Piece):
    """s_i <- the state of client i's optimizer at the end of its last round, whatever the run's `optimizer_state`.

    Douillard et al., "DiLoCo", 2023: a worker's AdamW goes on after a synchronization, and its moments are not sent.
    Stored: s_i, for AdamW 3 numbers a parameter. Sent: nothing. An unseen client uses the global model.
    """

    keeps_optimizer = True

    @classmethod
    def neutral(cls):
        return "it has one value, and is bitwise fedavg under an optimizer without a state, as sgd without momentum"


@dataclass(frozen=True)
class Merge(Piece):
    """start = sent + alpha (model - sent), where `model` is the client's model at the end of its last training.

    Douillard et al., "Streaming DiLoCo with overlapping communication", 2025, where a worker keeps the share alpha of
    its own fragment as it receives the fragment. A client that never trained starts at the server's. Stored: the
    client's model. Sent: nothing extra. An unseen client uses the global model.
    """

    alpha: float = 0.0

    reads = frozenset({"model", "fresh"})

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < 1:
            raise UserError(f"a share of {self.alpha:g} of the client's own model is none: give 0 or more, below 1.")

    @classmethod
    def neutral(cls):
        return cls(0.0), "fedavg"

    def start(self, view: View, theta: Tensor):
        own = torch.where(torch.as_tensor(view.fresh), theta, view.model)
        return theta + self.alpha * (own - theta)


@paper(
    "OpenDiLoCo's code",
    weighting="uniform",
    optimizer="adamw(beta2=0.95, weight_decay=0.1)",
    lr=0.0004,
    schedule="cosine",
    clip=1.0,
    steps="500",
    batch=512,
)
def diloco(every: int = 1, lr: float = OUTER, momentum: float = Momentum.beta) -> Algorithm:
    """Many local steps with an optimizer that goes on, then an outer step with Nesterov's momentum (Douillard et al.
    2023).

    Algorithm 1, where InnerOpt is the run's optimizer (the paper's: AdamW), whose state each client keeps:

        theta_i <- InnerOpt(theta_i, grad f_i(theta_i))     H times from theta_i = theta
        D <- mean_i (theta - theta_i);   v <- momentum v + D;   theta <- theta - lr (D + momentum v)

    H is the local steps of `every` rounds. Stored: the state of InnerOpt; with every > 1 also theta_i and theta as it
    was sent. Sent: theta each way, once in `every` rounds. An unseen client uses the global model.

    Use it for few clients, such as data centers, that each take hundreds of AdamW steps between two exchanges. It does
    not suit many devices that are asked now and then, since each keeps its optimizer's state.
    """
    parts: list[Any] = [InnerState(), Server(Nesterov(momentum, lr)), Period(EVERYTHING, every)]
    return algorithm(*parts, name=f"diloco(every={every}{changed(diloco, lr=lr, momentum=momentum)})")


@paper("OpenDiLoCo's code", weighting="uniform", optimizer="adamw(beta2=0.95, weight_decay=0.1)", lr=0.0004)
def streaming_diloco(
    blocks: int = 2,
    every: int | None = None,
    order: str = ORDERS[0],
    alpha: float = Merge.alpha,
    lr: float = OUTER,
    momentum: float = Momentum.beta,
) -> Algorithm:
    """DiLoCo whose layers are synchronized in turn, in `blocks` fragments: order=strided|sequential (Douillard et al.
    2025).

    Fragment b = 1, ..., blocks has every blocks-th group of layers, or neighboring ones, and a velocity v_b of its own.
    It is synchronized in rounds b every / blocks + n every, n = 0, 1, ..., counted from 1 and rounded down:

        D <- mean_i (theta_b - theta_{i,b});   v_b <- momentum v_b + D;   theta_b <- theta_b - lr (D + momentum v_b)
        theta_{i,b} <- alpha theta_{i,b} + (1 - alpha) theta_b

    `every` is `blocks` where it is not given, so that one fragment crosses in each round; blocks=1 is `diloco(every)`.
    Here messages arrive within their round: the paper's overlap tau, for which its alpha is 0.5, has no meaning.
    Stored: the state of the optimizer, theta_i and theta as it was sent. Sent: the fragment in turn, each way. An
    unseen client uses the global model.

    Use it in place of `diloco` where the largest single message counts: one fragment of the model crosses at a time.
    """
    period = blocks if every is None else every
    if not 1 <= blocks <= MOST or order not in ORDERS:
        raise UserError(
            f"blocks={blocks}, order={order} is impossible: blocks is 1 to {MOST}, order {' or '.join(ORDERS)}."
        )
    turns = [Period(f"{order} {b}/{blocks}", period, b * period // blocks) for b in range(1, blocks + 1)]
    merge = [Merge(alpha)] if alpha else []
    more = changed(streaming_diloco, every=every, order=order, alpha=alpha, lr=lr, momentum=momentum)
    outer = Server(Nesterov(momentum, lr))
    return algorithm(InnerState(), *merge, outer, *turns, name=f"streaming_diloco(blocks={blocks}{more})")
