"""FedProx: Li et al. 2020, algorithm 2 with local SGD on  f_i(y) + mu/2 ||y - x||^2.

y_i = x;  K times  y_i <- y_i - lr_t (g_i(y_i) + mu (y_i - x));   x <- sum_{i in S} w_i y_i.
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, known

EXAMPLE: dict = {"mu": 0.3}
MUTATIONS = {
    "sign": "pushed away from the anchor",
    "half": "mu/2 kept in the gradient",
    "anchor": "pulled towards the client's own last model",
    "outside": "the pull not scaled by the step size",
}


def run(f: Fixture, mu: float = 0.1, weights: str = "uniform", mutation: str | None = None) -> list[Round]:
    known(mutation, MUTATIONS)
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    for t, cohort in enumerate(f.cohorts):
        lr = f.lr[t]
        for i in cohort:
            anchor = models[i].copy() if mutation == "anchor" else x
            y = x.copy()
            for k in range(f.steps(t, i)):
                pull = mu * (y - anchor)
                if mutation == "sign":
                    pull = -pull
                if mutation == "half":
                    pull = pull / 2
                if mutation == "outside":
                    pull = pull / lr
                y = y - lr * (f.gradient(y, t, i, k) + pull)
            models[i] = y
        x = f.share(cohort, weights) @ models[cohort]
        rounds.append(Round(x, models.copy()))
    return rounds
