"""FedRep: Collins et al. 2021, algorithm 1; FedAlt (Pillutla et al. 2022) is the same with its own step counts.

phi_i = phi, h_i as client i left it;  the first `first` local steps (below 1: that share of them, rounded) move h_i,
    h_i <- h_i - inner_personal lr_t grad_h f_i(phi_i, h_i),  the others phi_i;    phi <- sum_{i in S} w_i phi_i.
Client i predicts with (phi, h_i); one never sampled trains the initial head on all its samples at phi, `epochs`
steps of the same size.
"""

from __future__ import annotations

import numpy as np

from .problem import HEAD, Fixture, Round, full_batches, known, probe

EXAMPLE: dict = {"first": 2, "epochs": 3, "batch": 64, "inner_personal": 0.4}
MUTATIONS = {
    "body_first": "phi_i moved first",
    "at_once": "both moved in every step (FedSim)",
    "averaged": "the head averaged over the cohort",
    "restarted": "the head begins at the initial one in every round",
    "unseen_whole": "a client never sampled trains body and head",
    "one_size": "the head by steps of lr_t",
    "both_sizes": "the body by inner_personal steps too",
    "unseen_size": "a client never sampled trains its head by steps of lr_t",
    "unseen_mean": "a client never sampled begins at the mean of the others' heads",
}


def run(
    f: Fixture,
    first: float = 5 / 6,
    epochs: int = 20,
    batch: int = 64,
    inner_personal: float = 1.0,
    personal: np.ndarray = HEAD,
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    assert batch >= f.samples.max(), "full batches"
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    met = np.zeros(f.clients, dtype=bool)
    own = 1.0 if mutation == "one_size" else inner_personal
    factor = np.where(personal | (mutation == "both_sizes"), own, 1.0)
    for t, cohort in enumerate(f.cohorts):
        unseen = f.lr[t] * (1.0 if mutation == "unseen_size" else own)
        for i in cohort:
            steps = f.steps(t, i)
            count = np.round(first * steps) if first < 1 else first
            theta = np.where(personal, f.initial if mutation == "restarted" else models[i], x)
            for k in range(steps):
                moves = personal if (k < count) != (mutation == "body_first") else ~personal
                moves = np.ones_like(personal) if mutation == "at_once" else moves
                theta = np.where(moves, theta - factor * f.lr[t] * f.gradient(theta, t, i, k), theta)
            models[i], met[i] = theta, True
        mean = f.share(cohort, weights) @ models[cohort]
        x = np.where(personal, x, mean)
        if mutation == "averaged":
            models[np.ix_(cohort, personal)] = mean[personal]
        scores = []
        for i in range(f.clients):
            begin = models[met].mean(axis=0) if mutation == "unseen_mean" else f.initial
            moves = np.ones_like(personal) if mutation == "unseen_whole" else personal
            new = full_batches(f, i, np.where(personal, begin, x), epochs, unseen, moves)
            scores.append(probe(np.where(personal, models[i], x) if met[i] else new))
        rounds.append(Round(x, models.copy(), scores=np.stack(scores)))
    return rounds
