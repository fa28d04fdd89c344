"""MOON + FedCOG (FedCOG's Table 3): in FedCOG's equation (3) the loss on the client's data is MOON's, contrast and all.

Both ask for the client's last model: MOON has no contrast, and FedCOG no disagreement, where there is none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .fedcog import EXAMPLE as ALONE
from .fedcog import Distillation
from .moon import contrast
from .problem import Fixture, Round, known

EXAMPLE: dict = {**ALONE, "mu": 2.0, "temperature": 0.5}
MUTATIONS = {
    "beside": "the contrast beside A.2.2's weights, not under that of the client's data",
    "swapped": "towards the last model, away from the global one",
    "generated": "the contrast once more, on the inputs that were made",
}


def run(
    f: Fixture,
    mu: float = 1.0,
    temperature: float = 0.5,
    weights: str = "uniform",
    mutation: str | None = None,
    **cog: Any,
) -> list[Round]:
    known(mutation, MUTATIONS)
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    seen: set[int] = set()
    for t, cohort in enumerate(f.cohorts):
        for i in cohort:
            y, made = x.copy(), Distillation(f, t, i, x, models[i], i not in seen, **cog)
            near, far = (models[i], x) if mutation == "swapped" else (x, models[i])
            for k in range(f.steps(t, i)):
                pull = np.zeros_like(x)
                if i in seen:
                    pull = mu * contrast(y, near, far, f.x[i][f.batches[t, i][k]], temperature, None)
                task = f.gradient(y, t, i, k)
                g = made.gradient(y, task, k) + pull if mutation == "beside" else made.gradient(y, task + pull, k)
                if mutation == "generated" and i in seen:
                    g = g + made.weight * mu * contrast(y, near, far, made.u, temperature, None)
                y = y - f.lr[t] * g
            models[i] = y
        seen |= set(cohort.tolist())
        x = f.share(cohort, weights) @ models[cohort]
        rounds.append(Round(x, models.copy()))
    return rounds
