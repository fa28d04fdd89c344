"""FedCM: Xu et al. 2021, algorithm 2.

y = x;  K times  y <- y - lr_t (a g_i(y) + (1 - a) Delta);   D_i = y - x
Delta <- - sum_{i in S} w_i D_i / (K_i lr_t);   x <- x + e sum_{i in S} w_i D_i;   Delta = 0 at first.
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, known

EXAMPLE: dict = {"alpha": 0.3, "server_lr": 0.9}
MUTATIONS = {
    "swapped": "(1 - a) g + a Delta",
    "sign": "the direction reversed",
    "whole_first": "the first round's gradients taken whole, Delta being zero",
    "undecayed": "the difference divided by K lr_0",
    "next": "the difference divided by the step size of the round that uses it",
    "no_steps": "the difference not divided by K",
    "outer": "Delta from the server's move, its own step size included",
}


def run(
    f: Fixture,
    alpha: float = 0.1,
    weights: str = "uniform",
    server_lr: float = 1.0,
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    delta = np.zeros_like(x)
    a, b = (1 - alpha, alpha) if mutation == "swapped" else (alpha, 1 - alpha)
    for t, cohort in enumerate(f.cohorts):
        directions = np.zeros_like(models)
        fresh = 1.0 if mutation == "whole_first" and t == 0 else a
        following = f.lr[min(t + 1, f.rounds - 1)]
        size = {"undecayed": f.lr[0], "next": following}.get(mutation or "", f.lr[t])
        for i in cohort:
            y = x.copy()
            for k in range(f.steps(t, i)):
                y = y - f.lr[t] * (fresh * f.gradient(y, t, i, k) + b * delta)
            models[i] = y
            directions[i] = (x - y) / (size * (1 if mutation == "no_steps" else f.steps(t, i)))
        w = f.share(cohort, weights)
        x = x + server_lr * (w @ (models[cohort] - x))
        delta = w @ directions[cohort] * (server_lr if mutation == "outer" else 1.0)
        if mutation == "sign":
            delta = -delta
        rounds.append(Round(x, models.copy()))
    return rounds
