"""FedAdam + relaxed initialisation: FedInit's mean of the clients' ends is what the server's Adam steps towards.

y_0 = x + beta (x - last_i), K steps of SGD;   `paper`:  D = mean y_K - x;   `delta`:  D = mean (y_K - y_0)
m <- b1 m + (1 - b1) D;   v <- b2 v + (1 - b2) D^2;   x <- x + e m / (sqrt(v) + tau);   m = v = 0 at first
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, known

EXAMPLE: dict = {"lr": 0.1, "tau": 0.01, "beta": 0.2}
MUTATIONS = {
    "corrected": "m and v corrected for their start at zero",
    "sign": "started towards the client's last model",
    "last_averaged": "the client remembers the server's new model, not its own end",
}


def run(
    f: Fixture,
    lr: float = 0.1,
    tau: float = 0.01,
    beta: float = 0.1,
    aggregate: str = "paper",
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    assert aggregate in ("paper", "delta"), aggregate
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    m, v, last = np.zeros_like(x), np.zeros_like(x), models.copy()
    for t, cohort in enumerate(f.cohorts):
        starts = np.zeros_like(models)
        for i in cohort:
            offset = beta * (x - last[i])
            starts[i] = x - offset if mutation == "sign" else x + offset
            y = starts[i].copy()
            for k in range(f.steps(t, i)):
                y = y - f.lr[t] * f.gradient(y, t, i, k)
            models[i] = y
        base = x if aggregate == "paper" else starts[cohort]
        d = f.share(cohort, weights) @ (models[cohort] - base)
        m, v = 0.9 * m + 0.1 * d, 0.99 * v + 0.01 * d * d
        first, second = m, v
        if mutation == "corrected":
            first, second = m / (1 - 0.9 ** (t + 1)), v / (1 - 0.99 ** (t + 1))
        x = x + lr * first / (np.sqrt(second) + tau)
        last[cohort] = x if mutation == "last_averaged" else models[cohort]
        rounds.append(Round(x, models.copy()))
    return rounds
