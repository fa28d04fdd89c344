"""FedSAM: Qu et al. 2022, algorithm 1.

y = x;  K times, both gradients on the step's batch:  e = rho g_i(y) / (||g_i(y)|| + 1e-7),  y <- y - lr_t g_i(y + e)
x <- x + e sum_{i in S} w_i (y_i - x)
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, known

EXAMPLE: dict = {"rho": 0.5}
MUTATIONS = {
    "descent": "the gradient taken where the loss is lowest nearby, y - e",
    "unnormalized": "e = rho g",
    "other_batch": "the second gradient on the next step's batch",
    "not_restored": "the step taken from y + e",
    "kept": "e of the first step throughout",
}


def run(
    f: Fixture, rho: float = 0.1, weights: str = "uniform", server_lr: float = 1.0, mutation: str | None = None
) -> list[Round]:
    known(mutation, MUTATIONS)
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    for t, cohort in enumerate(f.cohorts):
        for i in cohort:
            y, e = x.copy(), np.zeros_like(x)
            for k in range(f.steps(t, i)):
                if mutation != "kept" or k == 0:
                    g = f.gradient(y, t, i, k)
                    e = rho * g if mutation == "unnormalized" else rho * g / (np.linalg.norm(g) + 1e-7)
                    e = -e if mutation == "descent" else e
                batch = (k + 1) % f.steps(t, i) if mutation == "other_batch" else k
                step = f.lr[t] * f.gradient(y + e, t, i, batch)
                y = y + e - step if mutation == "not_restored" else y - step
            models[i] = y
        x = x + server_lr * (f.share(cohort, weights) @ (models[cohort] - x))
        rounds.append(Round(x, models.copy()))
    return rounds
