"""FedDyn + relaxed initialisation: the relaxed start is the centre of the quadratic and the base of both updates.

y_0 = w + beta (w - last_i);  K times  y <- y - lr_t (g_i(y) - h_i + a (y - y_0));   h_i <- h_i - a (y_K - y_0)
h <- h - a (1/N) sum_{i in S} (y_K - y_0);   `paper`:  w <- mean y_K - h/a;   `delta`:  w <- w + mean (y_K - y_0) - h/a
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, known

EXAMPLE: dict = {"alpha": 0.3, "beta": 0.2}
MUTATIONS = {
    "centre": "pulled towards what was sent",
    "base": "h_i and h from what was sent",
    "share": "h moved by 1/S, not 1/N",
    "sign": "started towards the client's last model",
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
    w, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    h, duals, last = np.zeros_like(w), np.zeros_like(models), models.copy()
    for t, cohort in enumerate(f.cohorts):
        new, starts, bases = duals.copy(), np.zeros_like(models), np.zeros_like(models)
        for i in cohort:
            offset = beta * (w - last[i])
            starts[i] = w - offset if mutation == "sign" else w + offset
            bases[i] = w if mutation == "base" else starts[i]
            centre, y = w if mutation == "centre" else starts[i], starts[i].copy()
            for k in range(f.steps(t, i)):
                y = y - f.lr[t] * (f.gradient(y, t, i, k) - duals[i] + alpha * (y - centre))
            models[i] = last[i] = y
            new[i] = duals[i] - alpha * (y - bases[i])
        moved = (models - bases)[cohort].sum(axis=0)
        h = h - alpha * moved / (len(cohort) if mutation == "share" else f.clients)
        base = w if aggregate == "paper" else starts[cohort]
        w = w + f.share(cohort, weights) @ (models[cohort] - base) - h / alpha
        duals = new
        rounds.append(Round(w, models.copy(), h, duals.copy()))
    return rounds
