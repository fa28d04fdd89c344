"""SCAFFOLD + FedCOG (FedCOG's Table 3): SCAFFOLD's algorithm 1, option II, on FedCOG's equation (3).

What SCAFFOLD calls the client's gradient is that of all the client minimises, so that
c_i+ = c_i - c + (x - y_i)/(K lr_t) holds the distillation's as well.
"""

from __future__ import annotations

import numpy as np

from .fedcog import EXAMPLE as ALONE
from .fedcog import Distillation
from .problem import Fixture, Round, known

EXAMPLE: dict = {**ALONE, "server_lr": 0.9}
MUTATIONS = {
    "task_only": "variates of the task's gradient, the distillation beside them uncorrected",
    "scaled": "the correction scaled with the task's weight",
}


def run(
    f: Fixture,
    kd_weight: float | str = 0.01,
    dis: float = 0.1,
    samples: int = 256,
    steps: int = 100,
    input_lr: float = 0.01,
    batch: int = 64,
    weights: str = "uniform",
    server_lr: float = 1.0,
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    c, controls = np.zeros_like(x), np.zeros_like(models)
    seen: set[int] = set()
    for t, cohort in enumerate(f.cohorts):
        new = controls.copy()
        for i in cohort:
            y, tasks = x.copy(), np.zeros_like(x)
            made = Distillation(f, t, i, x, models[i], i not in seen, kd_weight, dis, samples, steps, input_lr, batch)
            for k in range(f.steps(t, i)):
                task = f.gradient(y, t, i, k)
                tasks += task
                correction = (made.real if mutation == "scaled" else 1) * (c - controls[i])
                y = y - f.lr[t] * (made.gradient(y, task, k) + correction)
            models[i] = y
            new[i] = controls[i] - c + (x - y) / (f.steps(t, i) * f.lr[t])
            if mutation == "task_only":
                new[i] = tasks / f.steps(t, i)
            if mutation == "scaled":
                new[i] = new[i] + (1 - made.real) * (c - controls[i])
        seen |= set(cohort.tolist())
        c = c + (new - controls)[cohort].sum(axis=0) / f.clients
        x = x + server_lr * (f.share(cohort, weights) @ (models[cohort] - x))
        controls = new
        rounds.append(Round(x, models.copy(), c, controls.copy()))
    return rounds
