"""FedSAM + relaxed initialization: FedSAM's steps from the relaxed start.

y_0 = x + beta (x - last_i);  K times  e = rho g_i(y) / (||g_i(y)|| + 1e-7),  y <- y - lr_t g_i(y + e)
`paper`:  x <- mean y_K;   `delta`:  x <- x + mean (y_K - y_0)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .loop import Turn, loop, relaxed
from .problem import Fixture, Round, known

EXAMPLE: dict = {"rho": 0.5, "beta": 0.2}
MUTATIONS = {
    "descent": "the gradient taken where the loss is lowest nearby, y - e",
    "sign": "started towards the client's last model",
    "perturbed": "the client remembers the last point y + e at which it took a gradient",
}


def run(f: Fixture, rho: float = 0.1, beta: float = 0.1, mutation: str | None = None, **rest: Any) -> list[Round]:
    known(mutation, MUTATIONS)
    up: dict[int, np.ndarray] = {}  # where each client took its last gradient

    def along(turn: Turn) -> Any:
        def direction(y: np.ndarray, k: int) -> np.ndarray:
            g = turn.gradient(y, k)
            e = rho * g / (np.linalg.norm(g) + 1e-7)
            up[turn.i] = y - e if mutation == "descent" else y + e
            return turn.gradient(up[turn.i], k)

        return direction

    remembers = lambda turn, x: up[turn.i] if mutation == "perturbed" else turn.end
    return loop(f, relaxed(beta, mutation), along, remembers=remembers, **rest)
