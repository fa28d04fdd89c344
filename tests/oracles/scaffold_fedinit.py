"""SCAFFOLD + relaxed initialization: the variate's difference runs from the relaxed start, so it is the mean gradient.

y_0 = x + beta (x - last_i);  K times  y <- y - lr_t (g(y) - c_i + c);   c_i+ = c_i - c + (y_0 - y_K)/(K lr_t);
c <- c + (1/N) sum_{i in S} (c_i+ - c_i);   `paper`:  x <- mean y_K;   `delta`:  x <- x + mean (y_K - y_0).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .loop import Turn, Variates, loop, relaxed
from .problem import Fixture, Round, known

EXAMPLE: dict = {"beta": 0.2}
MUTATIONS = {
    "sent": "the difference taken from the sent model, x - y_K",
    "sign": "started towards the client's last model",
    "share": "c moved by 1/S, not 1/N",
    "last_start": "the client remembers where it started, not where it ended",
    "undecayed": "the difference divided by K lr_0",
}


def run(f: Fixture, beta: float = 0.1, mutation: str | None = None, **rest: Any) -> list[Round]:
    known(mutation, MUTATIONS)
    c = Variates(f)

    def variate(turn: Turn) -> np.ndarray:
        begin = turn.sent if mutation == "sent" else turn.start
        lr = f.lr[0] if mutation == "undecayed" else turn.lr
        return c.clients[turn.i] - c.server + (begin - turn.end) / (turn.steps * lr)

    remembers = lambda turn, x: turn.start if mutation == "last_start" else turn.end
    server = c.moving(variate, mutation)
    return loop(f, relaxed(beta, mutation), c.corrected, server, remembers=remembers, variates=c, **rest)
