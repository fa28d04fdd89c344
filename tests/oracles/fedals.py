"""FedALS: Gholami and Seferoglu 2024, algorithm 1: the head averaged every round, the body every alpha rounds.

Read with both conditions independent (the paper's `else if` never fires) and averaging after the local steps.
Partial participation (not in the paper): a sampled client takes the server's head, and goes on from its own body if it
trained since the last body synchronization, else takes the server's body; at a body synchronization the bodies of
that round's cohort are averaged. cohort=`held`: the cohort of an interval's first round stays for the whole interval.
"""

from __future__ import annotations

import numpy as np

from .problem import BODY, Fixture, Round, known

EXAMPLE: dict = {"alpha": 3}
MUTATIONS = {
    "else_if": "the body's condition is an `else` of the head's: the body is never averaged (as printed)",
    "first_round": "body averaged after rounds 0, alpha, 2 alpha (t mod alpha = 0), not at the intervals' ends",
    "always_sent": "a sampled client takes the server's body in every round",
    "always_own": "a client that ever trained goes on from its own body, whatever was averaged meanwhile",
    "everybody": "bodies of all that trained in the interval averaged, not of the closing cohort",
    "head_slow": "body and head exchanged",
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
    body = ~body if mutation == "head_slow" else body
    head = ~body
    server, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    trained = np.full(f.clients, -1)  # the last round in which each client trained
    for t in range(f.rounds):
        first = t - t % alpha  # the first round since the last body synchronization
        if mutation == "first_round":
            first = t - (t - 1) % alpha
        sampled = f.cohorts[t - t % alpha] if cohort == "held" else f.cohorts[t]
        for i in sampled:
            theta = server.copy()
            goes_on = trained[i] >= first
            if mutation == "always_sent":
                goes_on = False
            if mutation == "always_own":
                goes_on = trained[i] >= 0
            if goes_on:
                theta[body] = models[i][body]
            for k in range(f.steps(t, i)):
                theta = theta - f.lr[t] * f.gradient(theta, t, i, k)
            models[i], trained[i] = theta, t
        server = server.copy()
        server[head] = f.share(sampled, weights) @ models[sampled][:, head]
        due = (t + 1) % alpha == 0
        if mutation == "first_round":
            due = t % alpha == 0
        if mutation == "else_if":
            due = False
        if due:
            closing = np.flatnonzero(trained >= first) if mutation == "everybody" else sampled
            server[body] = f.share(closing, weights) @ models[closing][:, body]
        rounds.append(Round(server, models.copy()))
    return rounds


def algorithm_1(f: Fixture, alpha: int) -> list[np.ndarray]:
    """Algorithm 1 line by line, everyone in every round: all local models [K, 53] after each round's averaging."""
    theta, out = np.tile(f.initial, (f.clients, 1)), []
    for r in range(f.rounds):
        for i in range(f.clients):
            for k in range(f.steps(r, i)):
                theta[i] = theta[i] - f.lr[r] * f.gradient(theta[i], r, i, k)
        theta[:, ~BODY] = theta[:, ~BODY].mean(axis=0)
        if (r + 1) % alpha == 0:
            theta[:, BODY] = theta[:, BODY].mean(axis=0)
        out.append(theta.copy())
    return out
