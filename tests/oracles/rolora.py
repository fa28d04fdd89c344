"""RoLoRA: Chen et al. 2025: one factor is trained and averaged in odd rounds, the other in even ones (counted from 1).

Rounds 1, 3, ...: A rests, B_i <- B_i - lr grad_B f_i(A, B_i), B <- mean B_i; rounds 2, 4, ...: B rests, and A is
trained and averaged. B first, because A has no gradient where B is 0. Other parameters are trained and averaged in
every round. `first` and `second` are masks of the parameters, or names of the network's layers.
"""

from __future__ import annotations

import numpy as np

from .period import PLACES
from .problem import Fixture, Round, known

EXAMPLE: dict = {"first": "head", "second": "body"}
MUTATIONS = {
    "other_first": "A trained and averaged in the first round",
    "trains_both": "both factors trained in every round, and one of them averaged",
    "never_changes": "the first factor in every round: FFA-LoRA",
}


def run(
    f: Fixture,
    first: str | np.ndarray = EXAMPLE["first"],
    second: str | np.ndarray = EXAMPLE["second"],
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    masks = [PLACES[m] if isinstance(m, str) else m for m in (first, second)]
    server, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    for t, sampled in enumerate(f.cohorts):
        turn = 0 if mutation == "never_changes" else (t + (mutation == "other_first")) % 2
        rests = masks[1 - turn]
        moves = ~rests | (mutation == "trains_both")
        for i in sampled:
            theta = server.copy()
            for k in range(f.steps(t, i)):
                theta = np.where(moves, theta - f.lr[t] * f.gradient(theta, t, i, k), theta)
            models[i] = theta
        server = np.where(rests, server, f.share(sampled, weights) @ models[sampled])
        rounds.append(Round(server, models.copy()))
    return rounds
