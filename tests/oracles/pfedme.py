"""pFedMe: Dinh et al. 2020, algorithm 1, the proximal problem of a batch solved by a few steps of descent.

w_i = x, theta_i = x;  for each batch of the round
    where `restart` is batch: theta_i = w_i,
    `steps` times  theta_i <- theta_i - step_size (g_i(theta_i) + lam (theta_i - w_i)),
    w_i <- w_i - lr_t lam (w_i - theta_i);
x <- (1 - beta) x + beta (the weighted mean of w_i over S).
Client i predicts with theta_i as it last ended; one never sampled from x by `epochs` theta-steps on all its samples.
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, gradient, known, probe

EXAMPLE: dict = {"lam": 1.5, "steps": 3, "step_size": 0.2, "beta": 0.8, "epochs": 3, "batch": 64, "restart": "batch"}
MUTATIONS = {
    "detached": "the pull has no gradient: theta_i by g_i alone",
    "aliased": "the personal model is w_i, not theta_i",
    "never_written": "theta_i never written back: a client that took part predicts with the initial model",
    "decayed": "theta_i moved by 1e-3 theta_i as well, which the proximal problem has not",
    "everyone": "clients that were not sampled train as well",
    "once": "one inner step a batch",
    "carried": "theta_i goes on from batch to batch",
    "at_x": "theta_i begins every batch at x",
    "whole": "w_i <- theta_i",
    "unscaled": "w_i <- w_i - lr_t (w_i - theta_i)",
    "averaged": "theta_i averaged, not w_i",
    "unseen": "a client never sampled predicts with x",
}


def run(
    f: Fixture,
    lam: float = 15.0,
    steps: int = 5,
    step_size: float = 0.01,
    beta: float = 1.0,
    epochs: int = 20,
    batch: int = 64,
    restart: str = "round",
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    assert batch >= f.samples.max(), "full batches"
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    own, met = models.copy(), np.zeros(f.clients, dtype=bool)
    decay = 1e-3 if mutation == "decayed" else 0.0
    pull = 0.0 if mutation == "detached" else lam
    for t, cohort in enumerate(f.cohorts):
        for i in range(f.clients) if mutation == "everyone" else cohort:
            w, theta = x.copy(), x.copy()
            for k in range(f.steps(t, i)):
                if restart == "batch" and mutation != "carried":
                    theta = x if mutation == "at_x" else w
                for _ in range(1 if mutation == "once" else steps):
                    theta = theta - step_size * (f.gradient(theta, t, i, k) + pull * (theta - w) + decay * theta)
                w = w - f.lr[t] * (1.0 if mutation == "unscaled" else lam) * (w - theta)
                w = theta if mutation == "whole" else w
            models[i], own[i], met[i] = w, w if mutation == "aliased" else theta, True
        mean = f.share(cohort, weights) @ (own if mutation == "averaged" else models)[cohort]
        x = (1 - beta) * x + beta * mean
        scores = []
        for i in range(f.clients):
            theta = f.initial if met[i] and mutation == "never_written" else own[i] if met[i] else x
            for _ in range(0 if met[i] or mutation == "unseen" else epochs):
                theta = theta - step_size * (gradient(theta, f.x[i], f.y[i]) + pull * (theta - x))
            scores.append(probe(theta))
        rounds.append(Round(x, models.copy(), scores=np.stack(scores)))
    return rounds
