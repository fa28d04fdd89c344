"""Ditto: Li et al. 2021, algorithm 1 with FedAvg as the global solver.

y_i = x;  K times y_i <- y_i - lr_t g_i(y_i);
K times, same batches, v_i <- v_i - lr_t (g_i(v_i) + lam (v_i - x)), x as it was sent;
x <- sum_{i in S} w_i y_i.  With `lr`, v_i's steps have this size instead of lr_t; with `steps`, it takes so many, on
full batches of passes over the client's samples in an order that is drawn for the round.
v_i begins at the initial model.  Client i predicts with v_i, or x if it was never sampled.
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, gradient, in_turn, known, probe

EXAMPLE: dict = {"lam": 0.7, "lr": 0.2, "steps": 5}
MUTATIONS = {
    "sign": "pushed away from the sent model",
    "towards_end": "pulled towards the client's own y_i after its training",
    "restarted": "v_i begins at the sent model in every round (fine-tuning)",
    "initial_anchor": "pulled towards the initial model",
    "averaged": "the server averages v_i",
    "not_kept": "predicts with the global model",
    "one_size": "v_i by steps of lr_t",
    "one_number": "v_i takes as many steps as y_i",
    "same_batches": "v_i on the batches of y_i, in turn",
    "one_batch": "v_i on the first batch of the drawn order in every step",
}


def run(
    f: Fixture,
    lam: float = 1.0,
    lr: float | None = None,
    steps: int | None = None,
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    own, met = models.copy(), np.zeros(f.clients, dtype=bool)
    for t, cohort in enumerate(f.cohorts):
        for i in cohort:
            y = x.copy()
            for k in range(f.steps(t, i)):
                y = y - f.lr[t] * f.gradient(y, t, i, k)
            anchor = {"towards_end": y, "initial_anchor": f.initial}.get(mutation or "", x)
            v = x.copy() if mutation == "restarted" else own[i]
            size = f.lr[t] if lr is None or mutation == "one_size" else lr
            for k in range(f.steps(t, i) if steps is None or mutation == "one_number" else steps):
                rows = f.batches[t, i][k % f.steps(t, i)]
                if steps is not None and mutation != "same_batches":
                    rows = in_turn(f, t, i, 0 if mutation == "one_batch" else k, len(rows))
                g = gradient(v, f.x[i][rows], f.y[i][rows])
                v = v - size * (g + (-lam if mutation == "sign" else lam) * (v - anchor))
            models[i], own[i], met[i] = y, v, True
        x = f.share(cohort, weights) @ (own if mutation == "averaged" else models)[cohort]
        predicts = np.where(met[:, None] & (mutation != "not_kept"), own, x)
        rounds.append(Round(x, models.copy(), scores=np.stack([probe(theta) for theta in predicts])))
    return rounds
