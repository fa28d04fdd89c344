"""FedExP: Jhunjhunwala et al. 2023, algorithm 1 and equation (8).

y = x;  K times  y <- y - lr_t g_i(y);   D_i = x - y;   D = sum_i p_i D_i
eta = max(1, sum_i p_i ||D_i||^2 / (2 (||D||^2 + eps)));   x <- x - eta D
`evaluate` average: every client predicts with the mean of x and of x as it was before the round; last: with x.
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, known, probe

EXAMPLE: dict = {"epsilon": 1e-3, "weights": "samples", "evaluate": "average"}
MUTATIONS = {
    "half": "the 2 in the denominator forgotten",
    "interpolate": "eta below 1 where the updates agree: no maximum",
    "norms": "norms, not their squares",
    "of_mean": "||D||^2 as the mean of the squares: eta is 1 at most",
    "last": "the last iterate predicts",
    "of_all": "the mean of all iterates predicts",
    "from_average": "the next round begins at the mean of the last two",
    "times": "epsilon of equation (8) times the number of clients",
}


def run(
    f: Fixture,
    epsilon: float = 1e-3,
    evaluate: str = "last",
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    passed = [x]
    for t, cohort in enumerate(f.cohorts):
        for i in cohort:
            y = x.copy()
            for k in range(f.steps(t, i)):
                y = y - f.lr[t] * f.gradient(y, t, i, k)
            models[i] = y
        p, updates = f.share(cohort, weights), x - models[cohort]
        mean, power = p @ updates, 1 if mutation == "norms" else 2
        squares = p @ np.linalg.norm(updates, axis=1) ** power
        below = squares if mutation == "of_mean" else np.linalg.norm(mean) ** power
        eta = squares / (
            (1 if mutation == "half" else 2) * (below + (len(cohort) if mutation == "times" else 1) * epsilon)
        )
        x = x - (eta if mutation == "interpolate" else max(1.0, eta)) * mean
        passed.append(x)
        mean = np.mean(passed if mutation == "of_all" else passed[-2:], axis=0)
        x = mean if mutation == "from_average" else x
        predicts = mean if evaluate == "average" and mutation != "last" else x
        rounds.append(Round(x, models.copy(), scores=np.stack([probe(predicts)] * f.clients)))
    return rounds
