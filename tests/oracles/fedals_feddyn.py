"""FedALS + FedDyn: FedDyn's algorithm 1 by group, its round the interval between two averagings of the group.

s_i[G] is where client i's interval began, G as the server sent it.  In every local step
theta <- theta - lr_t (g - h_i + a (theta - s_i)).  When group G is averaged (head: every round, body: alpha):
h_i[G] <- h_i[G] - a (theta_i - s_i)[G];   h[G] <- h[G] - a (1/N) sum_{i in S} (theta_i - s_i)[G];
server[G] <- mean_{i in S} theta_i[G] - h[G]/a.   Participation as in fedals.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .loop import Turn, Variates, loop
from .problem import Fixture, Round, known

EXAMPLE: dict = {"alpha": 3, "strength": 0.3}
MUTATIONS = {
    "round": "the body pulled towards where the round began, not the interval",
    "every_round": "the body's h_i and h moved in every round",
    "last_round": "h_i and h moved by what the closing round alone did to the body",
    "whole": "h/a subtracted from the body in every round",
    "share": "h moved by 1/S, not 1/N",
}


def run(f: Fixture, alpha: int = 10, strength: float = 0.1, mutation: str | None = None, **rest: Any) -> list[Round]:
    known(mutation, MUTATIONS)
    h, began = Variates(f), np.tile(f.initial, (f.clients, 1))

    def along(turn: Turn) -> Any:
        began[turn.i] = np.where(turn.opens, turn.sent, began[turn.i])
        anchor = turn.start if mutation == "round" else began[turn.i]
        return lambda y, k: turn.gradient(y, k) - h.clients[turn.i] + strength * (y - anchor)

    def term(turn: Turn) -> np.ndarray:
        away = turn.end - (turn.start if mutation == "last_round" else began[turn.i])
        return h.clients[turn.i] - strength * np.where(turn.due | (mutation == "every_round"), away, 0)

    def server(x: np.ndarray, mean: np.ndarray, turns: list[Turn]) -> np.ndarray:
        rests = x - h.server / strength if mutation == "whole" else x
        return np.where(turns[0].due, x + mean - h.server / strength, rests)

    return loop(f, along=along, server=h.moving(term, mutation, server), variates=h, alpha=alpha, **rest)
