"""FedALS + relaxed initialisation: a group that the client takes from the server starts beyond it.

For the groups G that client i takes (head: every round; body: if it did not train since the last body synchronisation)
start_i[G] = server[G] + beta (server[G] - last_i[G]),  last_i = its model as it last ended; the others go on.
Averaging as in fedals.py (`paper`).
"""

from __future__ import annotations

import numpy as np

from .problem import BODY, Fixture, Round, known

EXAMPLE: dict = {"alpha": 3, "beta": 0.2}
MUTATIONS = {
    "sign": "towards the client's last model",
    "every_round": "the body relaxed in every round, from the client's own body",
    "head_only": "the body never relaxed",
    "body_only": "the head never relaxed",
}


def run(
    f: Fixture,
    alpha: int = 10,
    beta: float = 0.1,
    cohort: str = "redrawn",
    body: np.ndarray = BODY,
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    assert cohort in ("redrawn", "held"), cohort
    server, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    trained = np.full(f.clients, -1)
    for t in range(f.rounds):
        first = t - t % alpha
        sampled = f.cohorts[first] if cohort == "held" else f.cohorts[t]
        for i in sampled:
            opens = np.ones_like(body) if trained[i] < first else ~body
            offset = beta * (server - models[i])
            if mutation == "sign":
                offset = -offset
            relaxed = opens
            if mutation == "every_round":
                relaxed = np.ones_like(body)
            if mutation == "head_only":
                relaxed = opens & ~body
            if mutation == "body_only":
                relaxed = opens & body
            theta = np.where(opens, server, models[i]) + np.where(relaxed, offset, 0)
            for k in range(f.steps(t, i)):
                theta = theta - f.lr[t] * f.gradient(theta, t, i, k)
            models[i], trained[i] = theta, t
        due = ~body | ((t + 1) % alpha == 0)
        server = np.where(due, f.share(sampled, weights) @ models[sampled], server)
        rounds.append(Round(server, models.copy()))
    return rounds
