"""FedCM + relaxed initialization: a client's direction is that of its own training, from the relaxed start.

y_0 = x + beta (x - last_i);  K times  y <- y - lr_t (a g_i(y) + (1 - a) Delta)
Delta <- sum_{i in S} w_i (y_0 - y_K) / (K_i lr_t);   `paper`:  x <- mean y_K;   `delta`:  x <- x + mean (y_K - y_0)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .loop import Turn, loop, relaxed
from .problem import Fixture, Round, known

EXAMPLE: dict = {"alpha": 0.3, "beta": 0.2}
MUTATIONS = {
    "sent": "the direction taken from the sent model, x - y_K",
    "sign": "started towards the client's last model",
    "undecayed": "the difference divided by K lr_0",
}


def run(f: Fixture, alpha: float = 0.1, beta: float = 0.1, mutation: str | None = None, **rest: Any) -> list[Round]:
    known(mutation, MUTATIONS)
    weights, delta = rest.get("weights", "uniform"), np.zeros_like(f.initial)
    along = lambda turn: lambda y, k: alpha * turn.gradient(y, k) + (1 - alpha) * delta

    def direction(turn: Turn) -> np.ndarray:
        begin, lr = turn.sent if mutation == "sent" else turn.start, f.lr[0] if mutation == "undecayed" else turn.lr
        return (begin - turn.end) / (turn.steps * lr)

    def server(x: np.ndarray, mean: np.ndarray, turns: list[Turn]) -> np.ndarray:
        nonlocal delta
        share = f.share(np.array([turn.i for turn in turns]), weights)
        delta = share @ np.stack([direction(turn) for turn in turns])
        return x + mean

    return loop(f, relaxed(beta, mutation), along, server, **rest)
