"""SCAFFOLD + relaxed initialisation: the variate's difference runs from the relaxed start, so it is the mean gradient.

y_0 = x + beta (x - last_i);  K times  y <- y - lr_t (g(y) - c_i + c);   c_i+ = c_i - c + (y_0 - y_K)/(K lr_t);
c <- c + (1/N) sum_{i in S} (c_i+ - c_i);   `paper`:  x <- mean y_K;   `delta`:  x <- x + mean (y_K - y_0).
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, known

EXAMPLE: dict = {"beta": 0.2}
MUTATIONS = {
    "sent": "the difference taken from the sent model, x - y_K",
    "sign": "started towards the client's last model",
    "share": "c moved by 1/S, not 1/N",
    "last_start": "the client remembers where it started, not where it ended",
    "undecayed": "the difference divided by K lr_0",
}


def run(
    f: Fixture, beta: float = 0.1, aggregate: str = "paper", weights: str = "uniform", mutation: str | None = None
) -> list[Round]:
    known(mutation, MUTATIONS)
    assert aggregate in ("paper", "delta"), aggregate
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    c, controls, last = np.zeros_like(x), np.zeros_like(models), models.copy()
    for t, cohort in enumerate(f.cohorts):
        lr, new, starts = f.lr[t], controls.copy(), np.zeros_like(models)
        for i in cohort:
            offset = beta * (x - last[i])
            starts[i] = x - offset if mutation == "sign" else x + offset
            y = starts[i].copy()
            for k in range(f.steps(t, i)):
                y = y - lr * (f.gradient(y, t, i, k) - controls[i] + c)
            begin = x if mutation == "sent" else starts[i]
            new[i] = controls[i] - c + (begin - y) / (f.steps(t, i) * (f.lr[0] if mutation == "undecayed" else lr))
            models[i], last[i] = y, starts[i] if mutation == "last_start" else y
        base = x if aggregate == "paper" else starts[cohort]
        x = x + f.share(cohort, weights) @ (models[cohort] - base)
        c = c + (new - controls)[cohort].sum(axis=0) / (len(cohort) if mutation == "share" else f.clients)
        controls = new
        rounds.append(Round(x, models.copy(), c, controls.copy()))
    return rounds
