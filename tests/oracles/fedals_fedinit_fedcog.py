"""FedALS + relaxed initialization + FedCOG: starts and averaging as in fedals_fedinit.py, FedCOG's equations (1)-(3).

The teacher and the inputs are of what the server holds: the head of this round, the body as it was last averaged,
whatever body the client goes on from, and wherever it starts. Its last model is where its training last ended, body
and head. alpha = 1 is FedInit's algorithm 1 with FedCOG, beta = 0 FedALS's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .fedcog import EXAMPLE as ALONE
from .fedcog import Distillation
from .loop import Turn, loop
from .problem import Fixture, Round, known

EXAMPLE: dict = {**ALONE, "alpha": 3, "beta": 0.2}
MUTATIONS = {
    "own_body": "the teacher has the client's own body where the client goes on from it",
    "always_sent": "a sampled client takes the server's body in every round",
    "relaxed": "the teacher is the model that the client starts from",
    "sign": "started towards the client's last model",
}


def run(
    f: Fixture,
    alpha: int = 10,
    beta: float = 0.1,
    cohort: str = "redrawn",
    aggregate: str = "paper",
    weights: str = "uniform",
    mutation: str | None = None,
    **cog: Any,
) -> list[Round]:
    known(mutation, MUTATIONS)
    assert alpha == 1 or aggregate == "paper"

    def start(turn: Turn) -> np.ndarray:
        offset = (-beta if mutation == "sign" else beta) * (turn.sent - turn.model)
        return np.where(turn.opens | (mutation == "always_sent"), turn.sent + offset, turn.model)

    def along(turn: Turn) -> Any:
        teacher = {"relaxed": turn.start, "own_body": turn.taken()}.get(mutation or "", turn.sent)
        made = Distillation(f, turn.t, turn.i, teacher, turn.model, turn.new, **cog)
        return lambda y, k: made.gradient(y, turn.gradient(y, k), k)

    return loop(f, start, along, alpha=alpha, cohort=cohort, aggregate=aggregate, weights=weights)
