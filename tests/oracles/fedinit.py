"""FedInit: Sun et al. 2023 (arXiv 2306.05706), algorithm 1: relaxed initialization.

start_i = w + beta (w - last_i)  (line 6);  K local steps (lines 7-10);  last_i <- w_i  (line 11; unsampled: line 14)
aggregate `paper`:  w <- mean_{i in S} w_i  (line 16);   `delta`:  w <- w + mean_{i in S} (w_i - start_i)  (their code).
last_i = w^0 before the first participation (line 1), so that a client first seen in round t > 0 does start beyond w^t.
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, known

EXAMPLE: dict = {"beta": 0.2}
MUTATIONS = {
    "sign": "w - beta (w - last): towards the client's last model",
    "first_current": "no offset in the first participation",
    "last_start": "the client remembers where it started, not where it ended",
    "last_server": "w + beta (w - previous w), the same for all clients",
    "unsampled_reset": "clients that were not sampled forget: last_i <- w",
    "last_averaged": "the client remembers the new average, not its own end",
    "other_aggregate": "`delta` where `paper` is asked for, and the other way round",
}


def run(
    f: Fixture, beta: float = 0.1, aggregate: str = "paper", weights: str = "uniform", mutation: str | None = None
) -> list[Round]:
    known(mutation, MUTATIONS)
    assert aggregate in ("paper", "delta"), aggregate
    if mutation == "other_aggregate":
        aggregate = "delta" if aggregate == "paper" else "paper"
    w, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    last, seen, previous = models.copy(), set(), f.initial
    for t, cohort in enumerate(f.cohorts):
        starts = np.zeros_like(models)
        for i in cohort:
            offset = beta * (w - last[i])
            if mutation == "sign":
                offset = -offset
            if mutation == "first_current" and i not in seen:
                offset = 0 * offset
            if mutation == "last_server":
                offset = beta * (w - previous)
            starts[i] = w + offset
            y = starts[i].copy()
            for k in range(f.steps(t, i)):
                y = y - f.lr[t] * f.gradient(y, t, i, k)
            models[i] = y
            seen.add(i)
        base = w if aggregate == "paper" else starts[cohort]
        new = w + f.share(cohort, weights) @ (models[cohort] - base)
        for i in cohort:
            last[i] = starts[i] if mutation == "last_start" else new if mutation == "last_averaged" else models[i]
        if mutation == "unsampled_reset":
            last[np.setdiff1d(np.arange(f.clients), cohort)] = w
        w, previous = new, w
        rounds.append(Round(w, models.copy()))
    return rounds
