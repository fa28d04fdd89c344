"""SCAFFOLD under momentum and weight decay, c_i+ by line 12 as it stands, or by the mean of the gradients.

y_i = x, m = 0;  K times  m <- mu m + g_i(y_i) - c_i + c + wd y_i,  y_i <- y_i - lr_t m
`difference`: c_i+ = c_i - c + (x - y_i)/(K lr_t);   `mean_gradient`: c_i+ = (1/K) sum_k g_i(y_i) of the local steps
x <- x + sum_{i in S} w_i (y_i - x);   c <- c + (1/N) sum_{i in S} (c_i+ - c_i).  Without momentum and decay they agree.
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, known

EXAMPLE: dict = {"control": "difference", "momentum": 0.6, "weight_decay": 0.05}
MUTATIONS = {
    "mean_gradient": "the mean of the client's gradients, which the difference is under plain SGD alone",
    "gain": "the difference divided by momentum's gain too, 1/(1 - mu)",
    "undecayed": "the difference divided by K lr_0, the step size having decayed",
    "raw": "the difference alone, without c_i - c",
}


def run(
    f: Fixture,
    control: str = "difference",
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    c, controls = np.zeros_like(x), np.zeros_like(models)
    for t, cohort in enumerate(f.cohorts):
        new = controls.copy()
        for i in cohort:
            y, m, total, steps = x.copy(), np.zeros_like(x), np.zeros_like(x), f.steps(t, i)
            for k in range(steps):
                g = f.gradient(y, t, i, k)
                total += g
                m = momentum * m + g - controls[i] + c + weight_decay * y
                y = y - f.lr[t] * m
            models[i] = y
            moved = (x - y) / (steps * (f.lr[0] if mutation == "undecayed" else f.lr[t]))
            moved = moved * (1 - momentum) if mutation == "gain" else moved
            new[i] = moved if mutation == "raw" else controls[i] - c + moved
            if control == "mean_gradient" or mutation == "mean_gradient":
                new[i] = total / steps
        x = x + f.share(cohort, weights) @ (models[cohort] - x)
        c, controls = c + (new - controls)[cohort].sum(axis=0) / f.clients, new
        rounds.append(Round(x, models.copy(), c, controls.copy()))
    return rounds
