"""FedProx + relaxed initialisation: the anchor is where the client started, not what was sent.

start_i = x + beta (x - last_i);  K times  y <- y - lr_t (g(y) + mu (y - start_i));  `paper`, `delta` as in fedinit.py.
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, known

EXAMPLE: dict = {"mu": 0.3, "beta": 0.2}
MUTATIONS = {
    "sent": "pulled towards the sent model",
    "sign": "started towards the client's last model",
    "last": "pulled towards the client's last model",
}


def run(
    f: Fixture,
    mu: float = 0.1,
    beta: float = 0.1,
    aggregate: str = "paper",
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    assert aggregate in ("paper", "delta"), aggregate
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    for t, cohort in enumerate(f.cohorts):
        starts = np.zeros_like(models)
        for i in cohort:
            offset = beta * (x - models[i])
            starts[i] = x - offset if mutation == "sign" else x + offset
            anchor = x if mutation == "sent" else models[i].copy() if mutation == "last" else starts[i]
            y = starts[i].copy()
            for k in range(f.steps(t, i)):
                y = y - f.lr[t] * (f.gradient(y, t, i, k) + mu * (y - anchor))
            models[i] = y
        base = x if aggregate == "paper" else starts[cohort]
        x = x + f.share(cohort, weights) @ (models[cohort] - base)
        rounds.append(Round(x, models.copy()))
    return rounds
