"""FedDPA: Yang et al. 2024, by the authors' code: a local adapter y_i beside the global x, trained in turn in a round.

`first` steps of y_i <- y_i - lr grad_y f_i(x, y_i) with x at rest, then x_i <- x_i - lr grad_x f_i(x_i, 0) without the
local adapter, and x <- mean x_i. A share below 1 is that of the client's steps. `local` is a mask of the parameters.
"""

from __future__ import annotations

import numpy as np

from .period import PLACES
from .problem import Fixture, Round, known, probe

EXAMPLE: dict = {"local": "0.bias", "first": 0.5}
MUTATIONS = {
    "beside": "the shared adapter trained beside the local one: grad_x f_i(x_i, y_i)",
    "shared_first": "the shared adapter trained first, the local one beside the new x_i",
    "averaged": "the local adapters averaged, too",
    "alone": "the local adapter trained without the shared one",
}


def run(
    f: Fixture,
    local: str | np.ndarray = EXAMPLE["local"],
    first: float = 0.5,
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    own = PLACES[local] if isinstance(local, str) else local
    server, models, rounds, met = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), [], set()
    for t, sampled in enumerate(f.cohorts):
        for i in sampled:
            theta = np.where(own, models[i], server)
            steps = f.steps(t, i)
            turn = int(np.round(first * steps)) if 0 < first < 1 else int(first)
            for k in range(steps):
                locally = (k >= steps - turn) if mutation == "shared_first" else (k < turn)
                at = theta if locally or mutation == "beside" else np.where(own, 0.0, theta)
                if mutation == "alone" and locally:
                    at = np.where(own, theta, 0.0)
                theta = np.where(own == locally, theta - f.lr[t] * f.gradient(at, t, i, k), theta)
            models[i] = theta
        mean = f.share(sampled, weights) @ models[sampled]
        server = np.where(own & (mutation != "averaged"), server, mean)
        if mutation == "averaged":
            models[sampled] = np.where(own, mean, models[sampled])
        met |= set(sampled)
        each = [np.where(own, models[i] if i in met else f.initial, server) for i in range(f.clients)]
        scores = np.stack([probe(theta) for theta in each]) if isinstance(local, str) else None
        rounds.append(Round(server, models.copy(), scores=scores))
    return rounds
