"""SCAFFOLD: Karimireddy et al. 2020, algorithm 1 with option II.

y_i = x;  K times  y_i <- y_i - lr_t (g_i(y_i) - c_i + c)                                      (line 10)
c_i+ = c_i - c + (x - y_i)/(K lr_t)                                                           (line 12, option II)
x <- x + e sum_{i in S} w_i (y_i - x);   c <- c + (1/N) sum_{i in S} (c_i+ - c_i)              (lines 16, 17)
c is the old one throughout the round; c_i = c = 0 at first; w = 1/S in the paper, 1/N in c whatever w.
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, known

EXAMPLE: dict = {"server_lr": 0.9}
MUTATIONS = {
    "sign": "line 10 with the correction reversed, g + c_i - c",
    "share": "c moved by 1/S, not 1/N",
    "undecayed": "line 12 with the first round's step size: the difference divided by K lr_0",
    "one_sided": "only - c_i in the local step, no + c",
    "sum": "the sum of the clients' variates in the local step, not their mean (FedALS, algorithm 3, line 5)",
    "reversed": "c - c_i + (x - y)/(K lr) (FedALS, algorithm 3, line 7)",
    "no_steps": "the difference not divided by K",
    "never_written": "line 12 without the write-back: c_i computed, sent, and 0 ever after",
    "outer": "c_i from the server's new model, x - x+, not from the client's own",
}


def run(f: Fixture, weights: str = "uniform", server_lr: float = 1.0, mutation: str | None = None) -> list[Round]:
    known(mutation, MUTATIONS)
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    c, controls = np.zeros_like(x), np.zeros_like(models)
    for t, cohort in enumerate(f.cohorts):
        lr, new = f.lr[t], controls.copy()
        for i in cohort:
            y = x.copy()
            for k in range(f.steps(t, i)):
                correction = -controls[i] + c
                if mutation == "sign":
                    correction = -correction
                if mutation == "one_sided":
                    correction = -controls[i]
                if mutation == "sum":
                    correction = -controls[i] + f.clients * c
                y = y - lr * (f.gradient(y, t, i, k) + correction)
            models[i] = y
        x_new = x + server_lr * (f.share(cohort, weights) @ (models[cohort] - x))
        for i in cohort:
            steps = f.steps(t, i)
            moved = (x - models[i]) / (steps * lr)
            if mutation == "undecayed":
                moved = (x - models[i]) / (steps * f.lr[0])
            if mutation == "no_steps":
                moved = (x - models[i]) / lr
            if mutation == "outer":
                moved = (x - x_new) / (steps * lr)
            new[i] = controls[i] - c + moved
            if mutation == "reversed":
                new[i] = c - controls[i] + moved
        c = c + (new - controls)[cohort].sum(axis=0) / (len(cohort) if mutation == "share" else f.clients)
        x = x_new
        if mutation != "never_written":
            controls = new
        rounds.append(Round(x, models.copy(), c, controls.copy()))
    return rounds
