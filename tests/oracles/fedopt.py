"""FedAdam, FedYogi and FedAdagrad: Reddi et al. 2021, algorithm 2.

D = sum_{i in S} w_i (y_i - x);   m <- b1 m + (1 - b1) D                    m = 0 and v = `initial` at first
`adam`     v <- b2 v + (1 - b2) D^2
`yogi`     v <- v - (1 - b2) D^2 sign(v - D^2)
`adagrad`  v <- v + D^2
x <- x + e m / (sqrt(v) + tau)
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, known

EXAMPLE: dict = {"kind": "adam", "lr": 0.1}
MUTATIONS = {
    "corrected": "m and v corrected for their start at zero, as in Adam",
    "tau_inside": "sqrt(v + tau)",
    "unsquared": "v from |D|",
    "sign": "the step against D",
    "yogi": "Yogi's v for Adam's",
}


def run(
    f: Fixture,
    kind: str = "adam",
    lr: float = 0.1,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 1e-3,
    initial: float = 1e-6,
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    kind = "yogi" if mutation == "yogi" else kind
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    m, v = np.zeros_like(x), np.full_like(x, initial)
    for t, cohort in enumerate(f.cohorts):
        for i in cohort:
            y = x.copy()
            for k in range(f.steps(t, i)):
                y = y - f.lr[t] * f.gradient(y, t, i, k)
            models[i] = y
        d = f.share(cohort, weights) @ (models[cohort] - x)
        m = beta1 * m + (1 - beta1) * d
        square = np.abs(d) if mutation == "unsquared" else d * d
        v = {
            "adam": beta2 * v + (1 - beta2) * square,
            "yogi": v - (1 - beta2) * square * np.sign(v - square),
            "adagrad": v + square,
        }[kind]
        first, second = m, v
        if mutation == "corrected":
            first, second = m / (1 - beta1 ** (t + 1)), v / (1 - beta2 ** (t + 1))
        scale = np.sqrt(second + tau) if mutation == "tau_inside" else np.sqrt(second) + tau
        x = x + (-lr if mutation == "sign" else lr) * first / scale
        rounds.append(Round(x, models.copy()))
    return rounds
