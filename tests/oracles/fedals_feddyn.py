"""FedALS + FedDyn: FedDyn's algorithm 1 by group, its round the interval between two averagings of the group.

s_i[G] is where client i's interval began, G as the server sent it.  In every local step
theta <- theta - lr_t (g - h_i + a (theta - s_i)).  When group G is averaged (head: every round, body: alpha):
h_i[G] <- h_i[G] - a (theta_i - s_i)[G];   h[G] <- h[G] - a (1/N) sum_{i in S} (theta_i - s_i)[G];
server[G] <- mean_{i in S} theta_i[G] - h[G]/a.   Participation as in fedals.py.
"""

from __future__ import annotations

import numpy as np

from .problem import BODY, Fixture, Round, known

EXAMPLE: dict = {"alpha": 3, "strength": 0.3}
MUTATIONS = {
    "round": "the body pulled towards where the round began, not the interval",
    "every_round": "the body's h_i and h moved in every round",
    "last_round": "h_i and h moved by what the closing round alone did to the body",
    "whole": "h/a subtracted from the body in every round",
    "share": "h moved by 1/S, not 1/N",
}


def run(
    f: Fixture,
    alpha: int = 10,
    strength: float = 0.1,
    cohort: str = "redrawn",
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    assert cohort in ("redrawn", "held"), cohort
    server, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    h, duals, starts, trained = np.zeros_like(server), np.zeros_like(models), models.copy(), np.full(f.clients, -1)
    for t in range(f.rounds):
        first = t - t % alpha
        sampled, began = f.cohorts[first] if cohort == "held" else f.cohorts[t], starts.copy()
        for i in sampled:
            opens = ~BODY | (trained[i] < first)
            theta = np.where(opens, server, models[i])
            starts[i], began[i] = np.where(opens, server, starts[i]), theta
            anchor = began[i] if mutation == "round" else starts[i]
            for k in range(f.steps(t, i)):
                theta = theta - f.lr[t] * (f.gradient(theta, t, i, k) - duals[i] + strength * (theta - anchor))
            models[i], trained[i] = theta, t
        due = ~BODY | ((t + 1) % alpha == 0)
        moves = np.ones_like(due) if mutation == "every_round" else due
        away = np.where(moves, models - (began if mutation == "last_round" else starts), 0)[sampled]
        duals[sampled] -= strength * away
        h = h - strength * away.sum(axis=0) / (len(sampled) if mutation == "share" else f.clients)
        server = np.where(due, f.share(sampled, weights) @ models[sampled] - h / strength, server)
        if mutation == "whole":
            server = np.where(due, server, server - h / strength)
        rounds.append(Round(server, models.copy(), h, duals.copy()))
    return rounds
