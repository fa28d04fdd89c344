"""FedAvg + FT: Wang et al. 2019. Every client, sampled or not, takes `epochs` steps on all its samples from x."""

from __future__ import annotations

import numpy as np

from . import fedavg
from .problem import Fixture, Round, full_batches, known, probe

EXAMPLE: dict = {"epochs": 3, "batch": 64}
MUTATIONS = {
    "from_own": "from where the client last ended, not from x",
    "once": "one step",
    "undecayed": "the step size of round 0",
    "only_unseen": "clients that took part predict with x",
}


def run(
    f: Fixture,
    epochs: int = 1,
    lr: float | None = None,
    batch: int = 64,
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    assert batch >= f.samples.max(), "full batches"
    rounds = []
    for t, r in enumerate(fedavg.run(f, weights=weights)):
        size = lr or f.lr[0 if mutation == "undecayed" else t]
        begin = r.models if mutation == "from_own" else np.tile(r.server, (f.clients, 1))
        steps = np.full(f.clients, 1 if mutation == "once" else epochs)
        if mutation == "only_unseen":
            steps[np.unique(np.concatenate(f.cohorts[: t + 1]))] = 0
        tuned = [full_batches(f, i, begin[i], steps[i], size) for i in range(f.clients)]
        rounds.append(r._replace(scores=np.stack([probe(theta) for theta in tuned])))
    return rounds
