"""FedALS + SCAFFOLD: a control variate for each group, moved when the group is averaged, from raw gradients.

In every local step  theta <- theta - lr_t (g - c_i + c).  When group G is averaged (head: every round, body: alpha):
c_i+[G] = mean of g[G] over the local steps since the client took G from the server;
c[G] <- c[G] + (1/N) sum_{i in S} (c_i+ - c_i)[G];   server[G] <- mean_{i in S} theta_i[G].
The difference (ref - theta)/(lr steps) of the paper's algorithm 4 is that mean only while lr is constant.
Participation as in fedals.py.
"""

from __future__ import annotations

import numpy as np

from .problem import BODY, Fixture, Round, known

EXAMPLE: dict = {"alpha": 3}
MUTATIONS = {
    "sign": "the local step with the correction reversed, g + c_i - c",
    "share": "c moved by 1/S, not 1/N",
    "tau": "the body's sum of gradients divided by the steps of one round",
    "every_round": "the body's variates moved in every round",
    "last_round": "the body's variate from the gradients of the closing round only",
    "option_2": "the difference since the body was taken, divided by steps times the last step size",
    "corrected": "corrected gradients accumulated, not raw ones",
}


def run(
    f: Fixture,
    alpha: int = 10,
    cohort: str = "redrawn",
    body: np.ndarray = BODY,
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    assert cohort in ("redrawn", "held"), cohort
    server, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    c, controls = np.zeros_like(server), np.zeros_like(models)
    total, count, taken = np.zeros_like(models), np.zeros_like(models), models.copy()
    trained = np.full(f.clients, -1)
    for t in range(f.rounds):
        first = t - t % alpha
        sampled = f.cohorts[first] if cohort == "held" else f.cohorts[t]
        for i in sampled:
            theta = server.copy()
            opens = np.ones(len(server), dtype=bool)  # which parameters the client takes from the server
            if trained[i] >= first:
                opens = ~body
                theta[body] = models[i][body]
            taken[i][opens] = theta[opens]
            fresh = np.ones_like(opens) if mutation == "last_round" else opens
            total[i][fresh], count[i][fresh] = 0, 0
            for k in range(f.steps(t, i)):
                g = f.gradient(theta, t, i, k)
                correction = controls[i] - c if mutation == "sign" else c - controls[i]
                total[i] += g + correction if mutation == "corrected" else g
                count[i] += 1
                theta = theta - f.lr[t] * (g + correction)
            models[i], trained[i] = theta, t
        due = ~body | ((t + 1) % alpha == 0)
        moves = np.ones_like(due) if mutation == "every_round" else due
        new = controls.copy()
        for i in sampled:
            estimate = total[i] / count[i]
            if mutation == "tau":
                estimate = total[i] / f.steps(t, i)
            if mutation == "option_2":
                estimate = controls[i] - c + (taken[i] - models[i]) / (count[i] * f.lr[t])
            new[i][moves] = estimate[moves]
        c = c + (new - controls)[sampled].sum(axis=0) / (len(sampled) if mutation == "share" else f.clients)
        controls = new
        server = np.where(due, f.share(sampled, weights) @ models[sampled], server)
        rounds.append(Round(server, models.copy(), c, controls.copy()))
    return rounds
