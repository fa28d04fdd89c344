"""FedALS + SCAFFOLD: a control variate for each group, moved when the group is averaged, from raw gradients.

In every local step  theta <- theta - lr_t (g - c_i + c).  When group G is averaged (head: every round, body: alpha):
c_i+[G] = mean of g[G] over the local steps since the client took G from the server;
c[G] <- c[G] + (1/N) sum_{i in S} (c_i+ - c_i)[G];   server[G] <- mean_{i in S} theta_i[G].
The difference (ref - theta)/(lr steps) of the paper's algorithm 4 is that mean only while lr is constant.
Participation as in fedals.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .loop import Turn, Variates, loop
from .problem import Fixture, Round, known

EXAMPLE: dict = {"alpha": 3}
MUTATIONS = {
    "sign": "the correction of algorithm 4 reversed: g + c_i - c",
    "share": "c moved by 1/S, not 1/N",
    "tau": "the body's sum of gradients divided by the tau steps of one round, not by its alpha tau",
    "every_round": "the body's variates moved in every round",
    "last_round": "the body's variate from the gradients of the closing round only",
    "option_2": "the difference since the body was taken, divided by steps times the last step size",
    "corrected": "corrected gradients accumulated, not raw ones",
}


def run(f: Fixture, alpha: int = 10, mutation: str | None = None, **rest: Any) -> list[Round]:
    known(mutation, MUTATIONS)
    c, taken = Variates(f), np.tile(f.initial, (f.clients, 1))
    total, count = np.zeros_like(taken), np.zeros_like(taken)

    def along(turn: Turn) -> Any:
        fresh = True if mutation == "last_round" else turn.opens
        taken[turn.i] = np.where(turn.opens, turn.start, taken[turn.i])
        total[turn.i], count[turn.i] = np.where(fresh, 0, (total[turn.i], count[turn.i]))
        correction = (c.server - c.clients[turn.i]) * (-1 if mutation == "sign" else 1)

        def direction(y: np.ndarray, k: int) -> np.ndarray:
            g = turn.gradient(y, k)
            total[turn.i] += g + correction if mutation == "corrected" else g
            count[turn.i] += 1
            return g + correction

        return direction

    def variate(turn: Turn) -> np.ndarray:
        new = total[turn.i] / (turn.steps if mutation == "tau" else count[turn.i])
        if mutation == "option_2":
            new = c.clients[turn.i] - c.server + (taken[turn.i] - turn.end) / (count[turn.i] * turn.lr)
        return np.where(turn.due | (mutation == "every_round"), new, c.clients[turn.i])

    return loop(f, along=along, server=c.moving(variate, mutation), variates=c, alpha=alpha, **rest)
