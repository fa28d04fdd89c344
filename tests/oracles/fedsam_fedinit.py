"""FedSAM + relaxed initialisation: FedSAM's steps from the relaxed start.

y_0 = x + beta (x - last_i);  K times  e = rho g_i(y) / (||g_i(y)|| + 1e-7),  y <- y - lr_t g_i(y + e)
`paper`:  x <- mean y_K;   `delta`:  x <- x + mean (y_K - y_0)
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, known

EXAMPLE: dict = {"rho": 0.5, "beta": 0.2}
MUTATIONS = {
    "descent": "the gradient taken where the loss is lowest nearby, y - e",
    "sign": "started towards the client's last model",
    "perturbed": "the client remembers the last point y + e at which it took a gradient",
}


def run(
    f: Fixture,
    rho: float = 0.1,
    beta: float = 0.1,
    aggregate: str = "paper",
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    assert aggregate in ("paper", "delta"), aggregate
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    last = models.copy()
    for t, cohort in enumerate(f.cohorts):
        starts = np.zeros_like(models)
        for i in cohort:
            offset = beta * (x - last[i])
            starts[i] = x - offset if mutation == "sign" else x + offset
            y = up = starts[i].copy()
            for k in range(f.steps(t, i)):
                g = f.gradient(y, t, i, k)
                e = rho * g / (np.linalg.norm(g) + 1e-7)
                up = y - e if mutation == "descent" else y + e
                y = y - f.lr[t] * f.gradient(up, t, i, k)
            models[i], last[i] = y, up if mutation == "perturbed" else y
        base = x if aggregate == "paper" else starts[cohort]
        x = x + f.share(cohort, weights) @ (models[cohort] - base)
        rounds.append(Round(x, models.copy()))
    return rounds
