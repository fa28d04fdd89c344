"""FedNova: Wang et al. 2020, with momentum SGD on the clients (equations 6 and 7, section 5.2).

y = x, m = 0;  K_i times  m <- rho m + g_i(y),  y <- y - lr_t m.   The k-th gradient enters y with the coefficient
a_k = 1 + rho + ... + rho^(K - 1 - k);  d_i = (x - y) / ||a||_1;   x <- x - (sum_i p_i ||a_i||_1) sum_i p_i d_i
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, known

EXAMPLE: dict = {"momentum": 0.6, "weights": "samples"}
MUTATIONS = {
    "effective_steps": "multiplied by sum p_i K_i, right for plain SGD only",
    "own_steps": "divided by K_i, right for plain SGD only",
    "not_effective": "the normalized mean not multiplied back",
    "last_coefficients": "||a||_1 = (1 - rho^K) / (1 - rho), the first gradient's coefficient alone",
}


def run(f: Fixture, momentum: float = 0.0, weights: str = "uniform", mutation: str | None = None) -> list[Round]:
    known(mutation, MUTATIONS)
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    for t, cohort in enumerate(f.cohorts):
        divide, multiply = np.ones(f.clients), np.ones(f.clients)
        for i in cohort:
            y, m, steps = x.copy(), np.zeros_like(x), f.steps(t, i)
            for k in range(steps):
                m = momentum * m + f.gradient(y, t, i, k)
                y = y - f.lr[t] * m
            models[i] = y
            norm = sum(momentum**j for k in range(steps) for j in range(steps - k))
            divide[i] = steps if mutation == "own_steps" else norm
            multiply[i] = steps if mutation == "effective_steps" else norm
            if mutation == "last_coefficients":
                divide[i] = sum(momentum**j for j in range(steps))
        p = f.share(cohort, weights)
        d = p @ ((x - models[cohort]) / divide[cohort, None])
        x = x - (1.0 if mutation == "not_effective" else p @ multiply[cohort]) * d
        rounds.append(Round(x, models.copy()))
    return rounds
