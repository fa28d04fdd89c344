"""Periods with offsets: block b of the parameters is averaged at the end of round t where (t + 1 - o_b) mod p_b = 0.

Written from that definition, parameter by parameter: each has a period p and an offset o, and `since` is the number of
rounds before its last averaging. A sampled client goes on from its own value of a parameter if it trained in round
`since` or later, and else takes the server's; the values of the closing round's cohort are averaged. The averages may
be an outer step against D = (server - mean of the clients), each parameter with a velocity of its own:
v <- m v + D;  x <- x - e (D + m v),  at its own averagings and at no others.
"""

from __future__ import annotations

import numpy as np

from .problem import BODY, ENDS, HEAD, SIZE, Fixture, Round, known

PLACES = {"body": BODY, "head": HEAD, "0.bias": (np.arange(SIZE) >= ENDS[0]) & (np.arange(SIZE) < ENDS[1])}
EXAMPLE: dict = {"blocks": (("body", 3, 1), ("head", 2, 1))}
MUTATIONS = {
    "earlier": "the offset added: averaged where (t + 1 + o) mod p = 0",
    "ignored": "no offset: all blocks of a period averaged in the same rounds",
    "waits": "the first averaging only after a whole period, in round o + p",
    "from_zero": "intervals counted from round 0: t // p, whatever the offset",
    "always_sent": "a sampled client takes the server's values in every round",
}


def run(
    f: Fixture,
    blocks: tuple[tuple[str, int, int], ...] = EXAMPLE["blocks"],
    weights: str = "uniform",
    server_lr: float = 1.0,
    momentum: float = 0.0,
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    period, offset = np.ones(len(f.initial), dtype=int), np.zeros(len(f.initial), dtype=int)
    for name, p, o in blocks:
        period[PLACES[name]] = p
        offset[PLACES[name]] = 0 if mutation == "ignored" else -o if mutation == "earlier" else o
    server, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    velocity, since = np.zeros_like(server), np.zeros(len(server), dtype=int)
    trained = np.full(f.clients, -1)  # the last round in which each client trained
    for t, sampled in enumerate(f.cohorts):
        for i in sampled:
            first = t - t % period if mutation == "from_zero" else since
            theta = np.where((trained[i] >= first) & (mutation != "always_sent"), models[i], server)
            for k in range(f.steps(t, i)):
                theta = theta - f.lr[t] * f.gradient(theta, t, i, k)
            models[i], trained[i] = theta, t
        due = (t + 1 - offset) % period == 0
        if mutation == "waits":
            due &= t + 1 >= period
        outward = server - f.share(sampled, weights) @ models[sampled]
        faster = momentum * velocity + outward
        moved = server - server_lr * (outward + momentum * faster)
        server, velocity = np.where(due, moved, server), np.where(due, faster, velocity)
        since = np.where(due, t + 1, since)
        rounds.append(Round(server, models.copy()))
    return rounds
