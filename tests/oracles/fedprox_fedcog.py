"""FedProx + FedCOG (FedCOG's Table 3): FedCOG's equation (3), and mu (y - x), x as it was sent, beside its gradient.

Under A.2.2's weights the proximal term, which is no loss on the client's data, is whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .fedcog import EXAMPLE as ALONE
from .fedcog import Distillation
from .problem import Fixture, Round, known

EXAMPLE: dict = {**ALONE, "mu": 0.8}
MUTATIONS = {
    "scaled": "the pull scaled with the weight of the client's data",
    "own": "pulled towards the client's own last model",
}


def run(f: Fixture, mu: float = 0.1, weights: str = "uniform", mutation: str | None = None, **cog: Any) -> list[Round]:
    known(mutation, MUTATIONS)
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    seen: set[int] = set()
    for t, cohort in enumerate(f.cohorts):
        for i in cohort:
            y, made = x.copy(), Distillation(f, t, i, x, models[i], i not in seen, **cog)
            anchor = models[i] if mutation == "own" else x
            for k in range(f.steps(t, i)):
                pull = (made.real if mutation == "scaled" else 1.0) * mu * (y - anchor)
                y = y - f.lr[t] * (made.gradient(y, f.gradient(y, t, i, k), k) + pull)
            models[i] = y
        seen |= set(cohort.tolist())
        x = f.share(cohort, weights) @ models[cohort]
        rounds.append(Round(x, models.copy()))
    return rounds
