"""Low-rank adapters, W + s B A with W frozen: which of A and B are trained, averaged or a client's own, and when."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from apiece.algebra.broadcast import FederationFacts
from apiece.algebra.composition import Algorithm, Alternate, InTurn, Period, algorithm
from apiece.algebra.optim import Optimizer
from apiece.algebra.papers import paper
from apiece.algebra.periods import NEVER
from apiece.algebra.piece import Piece
from apiece.algebra.view import Loss, View
from apiece.errors import UserError
from apiece.pieces.outer_step import fedavg_p
from apiece.vector.groups import chooser, names_of
from apiece.vector.space import Space, sharing

A = "lora_A"  # all of a model's A, as `vector/groups.py` knows them by peft's names
B = "lora_B"
BOTH = "lora"
LOCAL = "*.local.*"  # peft's adapter of that name


@dataclass(frozen=True)
class Untrained(Piece):
    """theta_j <- theta_j(0): the selected parameters stay as the model has them, as if they required no gradient.

    Sun et al., "Improving LoRA in Privacy-preserving Federated Learning", ICLR 2024, for all A. They are no part of the
    vector. Stored and sent: nothing of them. An unseen client has them from the model.
    """

    which: str = "*bias"

    @classmethod
    def neutral(cls):
        return "what it selects is frozen: the algorithm without it, of a model in which that is frozen, is the same"

    def prepare(self, module: nn.Module) -> nn.Module:
        names = names_of(module)
        frozen = [alias for e in names.parameters if chooser(self.which, names)(e) for alias in e.aliases]
        if len(frozen) == sum(len(e.aliases) for e in names.parameters):
            raise UserError(
                f"{self.which!r} is all that the model trains, {', '.join(frozen)}: freeze some of it alone."
            )
        made = sharing(module)
        for name, p in made.named_parameters(remove_duplicate=False):
            p.requires_grad_(p.requires_grad and name not in frozen)
        return made


@dataclass(frozen=True)
class Beside(Piece):
    """F = loss(x, y) in the first local steps, then loss(x, 0): the shared x is trained without the personal y.

    Yang et al., "Dual-Personalizing Adapter for Federated Foundation Models", NeurIPS 2024, by the authors' code: a
    client trains its local adapter beside the global one, then the global one alone. An adapter of zeros adds nothing.
    `steps` as in `Alternate`. Stored and sent: nothing. An unseen client is served as without it.
    """

    which: str = "head"
    steps: float = 0.5
    chosen: Any = field(default=None, repr=False, compare=False)  # bool [D], set by `complete`

    @classmethod
    def neutral(cls):
        return cls(steps=1e9), "the same without it"

    def prepare(self, module: nn.Module) -> nn.Module:
        if self.which == LOCAL and not any(fnmatchcase(name, LOCAL) for name, _ in module.named_parameters()):
            raise UserError(
                "fed_dpa trains an adapter of the client's own beside the shared one, and the model has none: write "
                "lora(..., local=8) as the adapter, or say by a pattern which parameters are local, fed_dpa(local=...)."
            )
        return module

    def complete(self, space: Space, setting: FederationFacts | None, optimizer: Optimizer):
        return replace(self, chosen=space.select(self.which))

    def objective(self, view: View, loss: Loss):
        first = torch.round(view.planned * self.steps) if 0 < self.steps < 1 else self.steps

        def value(theta: Tensor, batch):
            return loss(torch.where(torch.as_tensor(view.step() < first) | ~self.chosen, theta, 0.0), batch)

        return value


@paper("the authors' code", weighting="samples", optimizer="adamw(weight_decay=0)", lr=0.0003)
def fedit(adapters: str = BOTH) -> Algorithm:
    """Federated averaging of all A and B, with the base frozen (Zhang et al. 2023).

    A <- sum_i p_i A_i;   B <- sum_i p_i B_i, with the run's weights: bitwise `fedavg` of a model that trains its
    adapters. Stored: nothing. Sent: A and B each way, with whatever else is trained. An unseen client uses the global
    model.

    Use it first for a model with adapters, as FedAvg is used for others.
    """
    return algorithm(Period(adapters, 1), name="fedit")


@paper("its equations", weighting="uniform", optimizer="sgd")
def ffa_lora(frozen: str = A) -> Algorithm:
    """A stays at its initial value, and B alone is trained and averaged (Sun et al. 2024).

    B <- sum_i p_i B_i, so that sum_i p_i B_i A is the mean of the clients' products: bitwise `fedavg` of a model whose
    A requires no gradient. By the notes of a reproduction, the paper's section 5 has r=8, alpha=8, ten local steps on
    batches of 200, and lr chosen from 0.1 to 1. Stored: nothing. Sent: B each way, with whatever else is trained. An
    unseen client uses the global model.

    Use it where the mean of the clients' adapters should be exact, or where noise is added to messages for privacy. A
    frozen A can learn less than a trained one.
    """
    return algorithm(Untrained(frozen), name="ffa_lora")


@paper("the authors' code on GLUE", weighting="samples", optimizer="sgd", lr=0.02, steps="10", batch=128)
def fedsa_lora(personal: str = B) -> Algorithm:
    """A is averaged, and B stays with the client (Guo et al. 2024).

    A <- sum_i p_i A_i;   B_i <- B_i - lr grad_B f_i, both trained together: bitwise `fedavg_p` with B personal. The
    authors' code on GLUE keeps the classifier with the client, too, `fedsa_lora("lora_B|*classifier*")`, and has r=8,
    alpha=16 and dropout=0.05. Stored: B_i. Sent: A each way, with whatever else is trained. An unseen client is served
    as under `fedavg_p`.

    Use it where clients' tasks differ and each should predict with a part of its own, while all share the directions A.
    """
    return replace(fedavg_p(personal), name="fedsa_lora")


@paper("its Algorithm 1", weighting="uniform", optimizer="sgd")
def rolora(first: str = B, second: str = A) -> Algorithm:
    """B is trained and averaged in rounds 1, 3, ..., A in rounds 2, 4, ..., while the other rests (Chen et al. 2025).

    Rounds 1, 3, ...:  B_i <- B_i - lr grad_B f_i(A, B_i),  then  B <- sum_i p_i B_i;
    rounds 2, 4, ...:  A_i <- A_i - lr grad_A f_i(A_i, B),  then  A <- sum_i p_i A_i, with the run's weights. B comes
    first, as in Algorithm 1: A has no gradient while B is 0. Its runs: r=4 on GLUE, r=8 on a model of 7 billion
    parameters. Stored: what rests, as it was sent. Sent up: what was trained; down: what was averaged since the client
    was last asked. What is no adapter is trained and averaged in every round. An unseen client uses the global model.

    Use it where the mean of the clients' adapters should be exact, as in `ffa_lora`, and A should learn too. It may
    need more rounds, since each matrix rests in every other one.
    """
    if first == second:
        raise UserError(f"rolora(first={first}, second={second}): the two take turns, so give different ones.")
    turns = Period(first, 2, 1), Period(second, 2), InTurn(first), InTurn(second)
    return algorithm(*turns, name="rolora")


@paper("the authors' code", weighting="samples", optimizer="adamw(weight_decay=0)", lr=0.0003)
def fed_dpa(local: str = LOCAL, first: float = Beside.steps) -> Algorithm:
    """A client trains an adapter of its own for `first` steps (below 1: that share) beside the shared one, then the
    shared one alone (Yang et al. 2024).

    y_i <- y_i - lr grad_y f_i(x, y_i) for `first` steps, then x_i <- x_i - lr grad_x f_i(x_i, 0);   x <- sum_i p_i x_i,
    where x is the shared adapter and y_i the local one, by default peft's adapter named `local`, which
    `--adapter "lora(r=8, local=8)"` makes; the model adds both.
    How an adapter is weighted against the other, by sample in the paper, is the model's: their scales. Stored: y_i.
    Sent: x each way. An unseen client is measured with x and the mean of all y_i, as under `fedavg_p`.

    Use it where each client wants an adapter of its own, and the shared adapter is also to serve clients with other
    data.
    """
    return algorithm(Period(local, NEVER), Alternate(local, first), Beside(local, first), name="fed_dpa")
