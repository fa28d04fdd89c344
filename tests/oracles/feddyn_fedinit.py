"""FedDyn + relaxed initialization: the relaxed start is the center of the quadratic and the base of both updates.

y_0 = w + beta (w - last_i);  K times  y <- y - lr_t (g_i(y) - h_i + a (y - y_0));   h_i <- h_i - a (y_K - y_0)
h <- h - a (1/N) sum_{i in S} (y_K - y_0);   `paper`:  w <- mean y_K - h/a;   `delta`:  w <- w + mean (y_K - y_0) - h/a
"""

from __future__ import annotations

from typing import Any

from .loop import Turn, Variates, loop, relaxed
from .problem import Fixture, Round, known

EXAMPLE: dict = {"alpha": 0.3, "beta": 0.2}
MUTATIONS = {
    "center": "pulled towards what was sent",
    "base": "h_i and h from what was sent",
    "share": "h moved by 1/S, not 1/N",
    "sign": "started towards the client's last model",
}


def run(f: Fixture, alpha: float = 0.1, beta: float = 0.1, mutation: str | None = None, **rest: Any) -> list[Round]:
    known(mutation, MUTATIONS)
    h = Variates(f)

    def along(turn: Turn) -> Any:
        center = turn.sent if mutation == "center" else turn.start
        return lambda y, k: turn.gradient(y, k) - h.clients[turn.i] + alpha * (y - center)

    term = lambda turn: h.clients[turn.i] - alpha * (turn.end - (turn.sent if mutation == "base" else turn.start))
    server = lambda x, mean, turns: x + mean - h.server / alpha
    return loop(f, relaxed(beta, mutation), along, h.moving(term, mutation, server), variates=h, **rest)
