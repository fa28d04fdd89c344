"""FedProx + relaxed initialization: the anchor is where the client started, not what was sent.

start_i = x + beta (x - last_i);  K times  y <- y - lr_t (g(y) + mu (y - start_i));  `paper`, `delta` as in fedinit.py.
"""

from __future__ import annotations

from typing import Any

from .loop import Turn, loop, relaxed
from .problem import Fixture, Round, known

EXAMPLE: dict = {"mu": 0.3, "beta": 0.2}
MUTATIONS = {
    "sent": "pulled towards the sent model",
    "sign": "started towards the client's last model",
    "last": "pulled towards the client's last model",
}


def run(f: Fixture, mu: float = 0.1, beta: float = 0.1, mutation: str | None = None, **rest: Any) -> list[Round]:
    known(mutation, MUTATIONS)

    def along(turn: Turn) -> Any:
        anchor = {"sent": turn.sent, "last": turn.last}.get(mutation or "", turn.start)
        return lambda y, k: turn.gradient(y, k) + mu * (y - anchor)

    return loop(f, relaxed(beta, mutation), along, **rest)
