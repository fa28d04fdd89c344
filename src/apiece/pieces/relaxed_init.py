"""FedInit's relaxed initialization: each client starts beyond the server's model, away from where it last ended."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from apiece.algebra.composition import Algorithm, algorithm
from apiece.algebra.message import Message
from apiece.algebra.optim import Optimizer
from apiece.algebra.papers import paper
from apiece.algebra.piece import Piece
from apiece.algebra.server_optim import gain
from apiece.algebra.view import View
from apiece.errors import UserError

AGGREGATES, FIRSTS = ("paper", "delta"), ("initial", "current")


@dataclass(frozen=True)
class RelaxedInit(Piece):
    """start = sent + beta (sent - model), where `model` is the client's model at the end of its last training.

    Sun et al., "Understanding How Consistency Works in Federated Learning via Stage-wise Relaxed Initialization",
    NeurIPS 2023, Algorithm 1, line 6. `aggregate="paper"`: the server averages the clients' ends (line 16).
    `aggregate="delta"`: it adds the mean of end - start to its vector, as the authors' code does; the two differ by
    beta mean(sent - model) under partial participation. `first="initial"`: the last model of a client that never
    trained is the initial model (line 1); `first="current"`: such a client starts at the server's model. In the paper's
    symbols w_{i,0}^t = w^t + beta (w^t - w_{i,K}^{t-1}). A negative beta starts towards the client's model, as the
    paper's Figure 2 shows for comparison.

    The paper's form adds beta mean(sent - model) to the server's vector, which pushes it on in the direction in which
    it moves already. Where the loss does not pull it back, it moves 1 / (1 + beta - beta gain / share) times as far a
    round as without the piece: `share` of the clients are asked in a round, and the server moves `gain` times a small
    mean update, 1 where it averages. It runs away where share < gain beta / (1 + beta), 0.09 for beta = 0.1.
    Stored: the client's model, w_{i,K}. Sent: nothing extra, in either form. An unseen client uses the global model,
    unrelaxed.
    """

    beta: float = 0.1
    aggregate: str = "paper"
    first: str = "initial"

    reads = frozenset({"model", "fresh"})

    def __post_init__(self) -> None:
        if self.beta <= -1:
            raise UserError(
                f"relaxed_init(beta={self.beta:g}) would start at the client's own model or beyond it: give 0 or more, "
                "or a negative number above -1, as in the paper's Figure 2."
            )
        for name, value, allowed in (("aggregate", self.aggregate, AGGREGATES), ("first", self.first, FIRSTS)):
            if value not in allowed:
                raise UserError(f"relaxed_init({name}={value}) is unknown: use {' or '.join(allowed)}.")

    def doubt(self, share: float, server: Optimizer):
        if self.aggregate == "delta":
            return ""
        moves = gain(server)
        if share >= moves * self.beta / (1 + self.beta):
            return ""
        return (
            f"relaxed_init(beta={self.beta:g}) may make the server's model run away, where a round asks "
            f"{100 * share:.3g} % of the clients: give aggregate=delta, or a beta below {share / (moves - share):.2g}."
        )

    @classmethod
    def neutral(cls):
        return cls(0.0), "fedavg"

    def start(self, view: View, theta: Tensor):
        away = self.beta * (theta - view.model)
        if self.first == "current":
            away = torch.where(torch.as_tensor(view.fresh), torch.zeros_like(away), away)
        return theta + away

    def upload(self, view: View, message: Message):
        if self.aggregate == "paper":
            return message
        return message._replace(delta=message.delta + (view.start - view.sent))


FEDINIT = paper(
    "section 5.1 and the authors' code",
    weighting="uniform",
    optimizer="sgd(weight_decay=0.001)",
    lr=0.1,
    schedule="exponential(0.998)",
    clip=10.0,
)


@FEDINIT
def relaxed_init(
    beta: float = RelaxedInit.beta, aggregate: str = RelaxedInit.aggregate, first: str = RelaxedInit.first
) -> Algorithm:
    """Clients start beyond the server's model: aggregate=paper|delta, first=initial|current; it can be added to any
    algorithm (Sun et al. 2023).

    Use it as an addition to another algorithm where clients come back often: it sends nothing more and keeps one model
    on each client. Begin with a small beta; where few of the clients are asked in a round, give aggregate=delta, since
    the paper's form may make training diverge.
    """
    return algorithm(RelaxedInit(beta, aggregate, first), name=f"relaxed_init(beta={beta:g})")


@FEDINIT
def fedinit(
    beta: float = RelaxedInit.beta, aggregate: str = RelaxedInit.aggregate, first: str = RelaxedInit.first
) -> Algorithm:
    """FedInit: federated averaging with relaxed initialization (Sun et al. 2023).

    Use it where clients come back often and may keep a model: it sends no more than FedAvg. Where few of the clients
    are asked in a round, give aggregate=delta. To add it to another algorithm, use `relaxed_init`.
    """
    return replace(relaxed_init(beta, aggregate, first), name=f"fedinit(beta={beta:g})")
