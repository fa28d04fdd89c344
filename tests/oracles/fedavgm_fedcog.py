"""FedAvgM + FedCOG (FedCOG's Table 3): the clients' part is FedCOG's algorithm 1, the server's step Hsu et al.'s.

D = sum_{i in S} w_i (x - y_i);  v <- m v + D;  x <- x - e v,  and x is what the inputs are made with and the teacher.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .fedcog import EXAMPLE as ALONE
from .fedcog import Distillation
from .loop import Turn, loop
from .problem import Fixture, Round, known

EXAMPLE: dict = {**ALONE, "momentum": 0.6, "server_lr": 0.9}
MUTATIONS = {
    "averaged": "the teacher is the mean of the last models, before the momentum's step",
    "sign": "the old velocity subtracted",
}


def run(
    f: Fixture,
    momentum: float = 0.9,
    weights: str = "uniform",
    server_lr: float = 1.0,
    mutation: str | None = None,
    **cog: Any,
) -> list[Round]:
    known(mutation, MUTATIONS)
    v, last, m = np.zeros_like(f.initial), f.initial, -momentum if mutation == "sign" else momentum

    def along(turn: Turn) -> Any:
        teacher = last if mutation == "averaged" else turn.sent
        made = Distillation(f, turn.t, turn.i, teacher, turn.model, turn.new, **cog)
        return lambda y, k: made.gradient(y, turn.gradient(y, k), k)

    def server(x: np.ndarray, mean: np.ndarray, turns: list[Turn]) -> np.ndarray:
        nonlocal v, last
        v, last = m * v - mean, x + mean
        return x - server_lr * v

    return loop(f, along=along, server=server, weights=weights)
