"""Scaffold-P + relaxed initialization of the shared part; the personal part starts where the client left it.

x_0,i = x + beta (x - last_i);   inner steps, y_i and c as in scaffold_p.py;   c_i+ = c_i - c + (x_0,i - x_K,i)/(K g_x);
`paper`:  x <- x + e_x mean (x_K,i - x);   `delta`:  x <- x + e_x mean (x_K,i - x_0,i);   last_i <- x_K,i.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .loop import Turn, Variates, loop
from .problem import HEAD, Fixture, Round, known

EXAMPLE: dict = {"beta": 0.2, "outer_shared": 0.8, "outer_personal": 0.6, "scale_shared": 1.0, "scale_personal": 0.5}
MUTATIONS = {
    "sent": "the difference taken from the sent model, x - x_K",
    "sign": "started towards the client's last shared part",
    "personal_too": "the personal part relaxed as well, away from the initial one, where the server's copy of it stays",
    "share": "c moved by 1/m, not 1/N",
    "outer_last": "the client remembers its shared part after the outer step, x + e_x (x_K - x)",
}


def run(
    f: Fixture,
    beta: float = 0.1,
    personal: np.ndarray = HEAD,
    outer_shared: float = 1.0,
    outer_personal: float = 1.0,
    scale_shared: float = 1.0,
    scale_personal: float = 1.0,
    mutation: str | None = None,
    **rest: Any,
) -> list[Round]:
    known(mutation, MUTATIONS)
    c, shared, sign = Variates(f), ~personal, -1 if mutation == "sign" else 1
    scale = np.where(shared, scale_shared, scale_personal)

    def start(turn: Turn) -> np.ndarray:
        own = beta * (turn.model - f.initial) if mutation == "personal_too" else 0
        return np.where(shared, turn.sent + sign * beta * (turn.sent - turn.last), turn.model + own)

    def along(turn: Turn) -> Any:
        correction = np.where(shared, c.server - c.clients[turn.i], 0)
        return lambda y, k: scale * (turn.gradient(y, k) + correction)

    keeps = lambda turn: np.where(shared, turn.end, turn.model + outer_personal * (turn.end - turn.model))

    def variate(turn: Turn) -> np.ndarray:
        begin = turn.sent if mutation == "sent" else turn.start
        new = c.clients[turn.i] - c.server + (begin - turn.end) / (turn.steps * scale_shared * turn.lr)
        return np.where(shared, new, 0)

    outer = lambda x, mean, turns: np.where(shared, x + outer_shared * mean, x)

    def remembers(turn: Turn, x: np.ndarray) -> np.ndarray:
        return turn.sent + outer_shared * (turn.end - turn.sent) if mutation == "outer_last" else turn.end

    return loop(f, start, along, c.moving(variate, mutation, outer), keeps, remembers, c, **rest)
