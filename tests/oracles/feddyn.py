"""FedDyn: Acar et al. 2021, algorithm 1, its inexact minimization by K steps of SGD.

y = w;  K times  y <- y - lr_t (g_i(y) - h_i + a (y - w))   gradient of f_i - <h_i, y> + a/2 ||y - w||^2
h_i <- h_i - a (y - w);   h <- h - a (1/N) sum_{i in S} (y_i - w);   w <- mean_{i in S} y_i - h/a
h_i = h = 0 at first; `weights` weigh the models only, the mean in h is over all N clients.
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, known

EXAMPLE: dict = {"alpha": 0.3}
MUTATIONS = {
    "sign": "the linear term reversed, + h_i",
    "linear_only": "the quadratic term a/2 ||y - w||^2 of the local objective forgotten",
    "share": "h moved by 1/S, not 1/N",
    "server_sign": "mean y + h/a",
    "cohort": "the server subtracts the cohort's mean of h_i, those that did not answer left out",
    "never_written": "h_i computed and never written back",
    "unscaled": "h subtracted without dividing by a",
}


def run(f: Fixture, alpha: float = 0.1, weights: str = "uniform", mutation: str | None = None) -> list[Round]:
    known(mutation, MUTATIONS)
    w, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    h, duals = np.zeros_like(w), np.zeros_like(models)
    for t, cohort in enumerate(f.cohorts):
        new = duals.copy()
        for i in cohort:
            y = w.copy()
            for k in range(f.steps(t, i)):
                pull = 0.0 if mutation == "linear_only" else alpha * (y - w)
                linear = duals[i] if mutation == "sign" else -duals[i]
                y = y - f.lr[t] * (f.gradient(y, t, i, k) + linear + pull)
            models[i] = y
            new[i] = duals[i] - alpha * (y - w)
        h = h - alpha * (models[cohort] - w).sum(axis=0) / (len(cohort) if mutation == "share" else f.clients)
        back = new[cohort].mean(axis=0) if mutation == "cohort" else h
        back = -back if mutation == "server_sign" else back
        w = f.share(cohort, weights) @ models[cohort] - back / (1.0 if mutation == "unscaled" else alpha)
        if mutation != "never_written":
            duals = new
        rounds.append(Round(w, models.copy(), h, duals.copy()))
    return rounds
