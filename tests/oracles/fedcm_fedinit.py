"""FedCM + relaxed initialisation: a client's direction is that of its own training, from the relaxed start.

y_0 = x + beta (x - last_i);  K times  y <- y - lr_t (a g_i(y) + (1 - a) Delta)
Delta <- sum_{i in S} w_i (y_0 - y_K) / (K_i lr_t);   `paper`:  x <- mean y_K;   `delta`:  x <- x + mean (y_K - y_0)
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, known

EXAMPLE: dict = {"alpha": 0.3, "beta": 0.2}
MUTATIONS = {
    "sent": "the direction taken from the sent model, x - y_K",
    "sign": "started towards the client's last model",
    "undecayed": "the difference divided by K lr_0",
}


def run(
    f: Fixture,
    alpha: float = 0.1,
    beta: float = 0.1,
    aggregate: str = "paper",
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    assert aggregate in ("paper", "delta"), aggregate
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    delta, last = np.zeros_like(x), models.copy()
    for t, cohort in enumerate(f.cohorts):
        starts, directions = np.zeros_like(models), np.zeros_like(models)
        for i in cohort:
            offset = beta * (x - last[i])
            starts[i] = x - offset if mutation == "sign" else x + offset
            y = starts[i].copy()
            for k in range(f.steps(t, i)):
                y = y - f.lr[t] * (alpha * f.gradient(y, t, i, k) + (1 - alpha) * delta)
            models[i] = last[i] = y
            begin, lr = x if mutation == "sent" else starts[i], f.lr[0] if mutation == "undecayed" else f.lr[t]
            directions[i] = (begin - y) / (f.steps(t, i) * lr)
        base, w = x if aggregate == "paper" else starts[cohort], f.share(cohort, weights)
        x, delta = x + w @ (models[cohort] - base), w @ directions[cohort]
        rounds.append(Round(x, models.copy()))
    return rounds
