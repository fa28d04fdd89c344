"""Streaming DiLoCo: Douillard et al. 2025: fragments of the layers have outer steps of their own, in turn.

Fragment b = 1, ..., P is synchronized where (n - b H / P) mod H = 0, n = 1, 2, ... rounds done, without an overlap:
D_b <- theta_b - mean_i theta_{i,b};  v_b <- m v_b + D_b;  theta_b <- theta_b - e (D_b + m v_b);
theta_{i,b} <- a theta_{i,b} + (1 - a) theta_b. The inner AdamW goes on in every parameter (diloco.py). Partial
participation (not in the paper): a client takes a fragment when it is next asked, if the fragment was synchronized
since the client last trained; who never trained takes the server's as it is.
"""

from __future__ import annotations

import numpy as np

from .diloco import AdamW
from .problem import BODY, HEAD, Fixture, Round, known

EXAMPLE: dict = {"blocks": 2, "every": 3, "alpha": 0.3}
MUTATIONS = {
    "together": "all fragments in the rounds H, 2 H, ...",
    "shared_velocity": "every velocity moved in every round, its fragment in its own",
    "swapped": "a share a of the server's fragment, the rest the client's own",
    "whole": "the fragment due taken to be the whole model",
}


def run(
    f: Fixture,
    blocks: int = 2,
    every: int = 2,
    alpha: float = 0.0,
    server_lr: float = 0.7,
    momentum: float = 0.9,
    decay: float = 0.01,
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    assert blocks in (1, 2), blocks  # the network has two layers
    fragments = [BODY, HEAD] if blocks == 2 else [BODY | HEAD]
    turn = np.zeros(len(f.initial), dtype=int)
    for b, fragment in enumerate(fragments, start=1):
        turn[fragment] = b * every // blocks
    turn = 0 * turn if mutation == "together" else turn
    inner = AdamW(f, decay)
    theta, workers, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    v, since, trained = np.zeros_like(theta), np.zeros(len(theta), dtype=int), np.full(f.clients, -1)
    a = 1 - alpha if mutation == "swapped" else alpha
    for t, sampled in enumerate(f.cohorts):
        for i in sampled:
            merged = a * workers[i] + (1 - a) * theta
            mine = theta if trained[i] < 0 else np.where(trained[i] >= since, workers[i], merged)
            for k in range(f.steps(t, i)):
                mine = inner.step(mine, f.gradient(mine, t, i, k), i, f.lr[t])
            workers[i], trained[i] = mine, t
        due = (t + 1 - turn) % every == 0
        due = due | (mutation == "whole" and due.any())
        outward = theta - f.share(sampled, weights) @ workers[sampled]
        faster = momentum * v + outward
        theta = np.where(due, theta - server_lr * (outward + momentum * faster), theta)
        v = faster if mutation == "shared_velocity" else np.where(due, faster, v)
        since = np.where(due, t + 1, since)
        rounds.append(Round(theta.copy(), workers.copy()))
    return rounds
