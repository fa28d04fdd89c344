"""FedALS + relaxed initialisation + FedCOG: starts and averaging as in fedals_fedinit.py, FedCOG's equations (1)-(3).

The teacher and the inputs are of what the server holds: the head of this round, the body as it was last averaged,
whatever body the client goes on from, and wherever it starts. Its last model is where its training last ended, body
and head. alpha = 1 is FedInit's algorithm 1 with FedCOG, beta = 0 FedALS's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .fedcog import EXAMPLE as ALONE
from .fedcog import Distillation
from .problem import BODY, Fixture, Round, known

EXAMPLE: dict = {**ALONE, "alpha": 3, "beta": 0.2}
MUTATIONS = {
    "own_body": "the teacher has the client's own body where the client goes on from it",
    "always_sent": "a sampled client takes the server's body in every round",
    "relaxed": "the teacher is the model that the client starts from",
    "sign": "started towards the client's last model",
}


def run(
    f: Fixture,
    alpha: int = 10,
    beta: float = 0.1,
    cohort: str = "redrawn",
    aggregate: str = "paper",
    weights: str = "uniform",
    mutation: str | None = None,
    **cog: Any,
) -> list[Round]:
    known(mutation, MUTATIONS)
    assert cohort in ("redrawn", "held") and aggregate in ("paper", "delta") and (alpha == 1 or aggregate == "paper")
    server, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    trained = np.full(f.clients, -1)
    for t in range(f.rounds):
        first = t - t % alpha
        sampled, starts = f.cohorts[first] if cohort == "held" else f.cohorts[t], models.copy()
        for i in sampled:
            opens = ~BODY | (trained[i] < first) | (mutation == "always_sent")
            offset = (-beta if mutation == "sign" else beta) * (server - models[i])
            starts[i] = np.where(opens, server + offset, models[i])
            teacher = starts[i] if mutation == "relaxed" else server
            if mutation == "own_body":
                teacher = np.where(opens, server, models[i])
            theta, made = starts[i], Distillation(f, t, i, teacher, models[i], trained[i] < 0, **cog)
            for k in range(f.steps(t, i)):
                theta = theta - f.lr[t] * made.gradient(theta, f.gradient(theta, t, i, k), k)
            models[i], trained[i] = theta, t
        ends = models if aggregate == "paper" else server + models - starts
        due = ~BODY | ((t + 1) % alpha == 0)
        server = np.where(due, f.share(sampled, weights) @ ends[sampled], server)
        rounds.append(Round(server, models.copy()))
    return rounds
