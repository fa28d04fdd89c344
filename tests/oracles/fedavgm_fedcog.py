"""FedAvgM + FedCOG (FedCOG's Table 3): the clients' part is FedCOG's algorithm 1, the server's step Hsu et al.'s.

D = sum_{i in S} w_i (x - y_i);  v <- m v + D;  x <- x - e v,  and x is what the inputs are made with and the teacher.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .fedcog import EXAMPLE as ALONE
from .fedcog import Distillation
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
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    v, m, mean = np.zeros_like(x), -momentum if mutation == "sign" else momentum, x
    seen: set[int] = set()
    for t, cohort in enumerate(f.cohorts):
        for i in cohort:
            y = x.copy()
            made = Distillation(f, t, i, mean if mutation == "averaged" else x, models[i], i not in seen, **cog)
            for k in range(f.steps(t, i)):
                y = y - f.lr[t] * made.gradient(y, f.gradient(y, t, i, k), k)
            models[i] = y
        seen |= set(cohort.tolist())
        mean = f.share(cohort, weights) @ models[cohort]
        v = m * v + x - mean
        x = x - server_lr * v
        rounds.append(Round(x, models.copy()))
    return rounds
