"""FedAdam + relaxed initialization: FedInit's mean of the clients' ends is what the server's Adam steps towards.

y_0 = x + beta (x - last_i), K steps of SGD;   `paper`:  D = mean y_K - x;   `delta`:  D = mean (y_K - y_0)
m <- b1 m + (1 - b1) D;   v <- b2 v + (1 - b2) D^2;   x <- x + e m / (sqrt(v) + tau);   m = v = 0 at first
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .loop import Turn, loop, relaxed
from .problem import Fixture, Round, known

EXAMPLE: dict = {"lr": 0.1, "tau": 0.01, "beta": 0.2}
MUTATIONS = {
    "corrected": "m and v corrected for their start at zero",
    "sign": "started towards the client's last model",
    "last_averaged": "the client remembers the server's new model, not its own end",
}


def run(
    f: Fixture, lr: float = 0.1, tau: float = 0.01, beta: float = 0.1, mutation: str | None = None, **rest: Any
) -> list[Round]:
    known(mutation, MUTATIONS)
    m, v = np.zeros_like(f.initial), np.zeros_like(f.initial)

    def server(x: np.ndarray, d: np.ndarray, turns: list[Turn]) -> np.ndarray:
        nonlocal m, v
        m, v, done = 0.9 * m + 0.1 * d, 0.99 * v + 0.01 * d * d, turns[0].t + 1
        first, second = (m / (1 - 0.9**done), v / (1 - 0.99**done)) if mutation == "corrected" else (m, v)
        return x + lr * first / (np.sqrt(second) + tau)

    remembers = lambda turn, x: x if mutation == "last_averaged" else turn.end
    start = relaxed(beta, mutation)
    return loop(f, start, server=server, remembers=remembers, **rest)
