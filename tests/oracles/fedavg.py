"""FedAvg: McMahan et al. 2017, algorithm 1, with a step size per round and the weights as a value.

y_i = x;  K times  y_i <- y_i - lr_t g_i(y_i);   x <- x + e sum_{i in S} w_i (y_i - x),  sum of w over S = 1.
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, known

EXAMPLE: dict = {"weights": "samples"}
MUTATIONS = {
    "registered": "weights divided by the total of all clients, not of those that took part",
    "undecayed": "the step size of round 0 throughout",
    "uniform": "models averaged without the weights asked for",
    "early": "every local gradient taken at the sent model",
}


def run(f: Fixture, weights: str = "uniform", server_lr: float = 1.0, mutation: str | None = None) -> list[Round]:
    known(mutation, MUTATIONS)
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    for t, cohort in enumerate(f.cohorts):
        lr = f.lr[0] if mutation == "undecayed" else f.lr[t]
        for i in cohort:
            y = x.copy()
            for k in range(f.steps(t, i)):
                y = y - lr * f.gradient(x if mutation == "early" else y, t, i, k)
            models[i] = y
        w = f.share(cohort, "uniform" if mutation == "uniform" else weights)
        if mutation == "registered":
            w = f.share(np.arange(f.clients), weights)[cohort]
        x = x + server_lr * (w @ (models[cohort] - x))
        rounds.append(Round(x, models.copy()))
    return rounds
