"""FFA-LoRA: Sun et al. 2024: A stays as it was drawn; B <- mean_i B_i, trained with A at rest.

Handed back is what is trained, for A is neither sent nor stored. `frozen` is a mask of the parameters.
"""

from __future__ import annotations

import numpy as np

from .period import PLACES
from .problem import HEAD, Fixture, Round, known, probe

EXAMPLE: dict = {"frozen": "body"}
PARAMETERS = np.zeros(HEAD.sum())
MUTATIONS = {
    "trains": "A trained by the client and not sent",
    "zero": "A frozen at zero",
    "half": "steps of half the size on B",
}


def widened(initial: np.ndarray, frozen: str | np.ndarray = EXAMPLE["frozen"]) -> np.ndarray:
    """What is trained of a vector of all parameters."""
    return initial[..., ~(PLACES[frozen] if isinstance(frozen, str) else frozen)]


def run(
    f: Fixture, frozen: str | np.ndarray = EXAMPLE["frozen"], weights: str = "uniform", mutation: str | None = None
) -> list[Round]:
    known(mutation, MUTATIONS)
    still = PLACES[frozen] if isinstance(frozen, str) else frozen
    server = np.where(still & (mutation == "zero"), 0.0, f.initial)
    models, rounds = np.tile(server, (f.clients, 1)), []
    rate = 0.5 if mutation == "half" else 1.0
    for t, sampled in enumerate(f.cohorts):
        for i in sampled:
            theta = server.copy()
            for k in range(f.steps(t, i)):
                step = theta - rate * f.lr[t] * f.gradient(theta, t, i, k)
                theta = np.where(still & (mutation != "trains"), theta, step)
            models[i] = theta
        server = np.where(still, server, f.share(sampled, weights) @ models[sampled])
        scores = np.stack([probe(server)] * f.clients) if len(server) == 53 else None
        rounds.append(Round(widened(server, still), widened(models, still), scores=scores))
    return rounds
