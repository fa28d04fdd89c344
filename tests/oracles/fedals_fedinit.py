"""FedALS + relaxed initialization: a group that the client takes from the server starts beyond it.

For the groups G that client i takes (head: every round; body: if it did not train since the last body synchronization)
start_i[G] = server[G] + beta (server[G] - last_i[G]),  last_i = its model as it last ended; the others go on.
Averaging as in fedals.py (`paper`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .loop import Turn, loop
from .problem import BODY, Fixture, Round, known

EXAMPLE: dict = {"alpha": 3, "beta": 0.2}
MUTATIONS = {
    "sign": "towards the client's last model",
    "every_round": "the body relaxed in every round, from the client's own body",
    "head_only": "the body never relaxed",
    "body_only": "the head never relaxed",
}


def run(
    f: Fixture, alpha: int = 10, beta: float = 0.1, body: np.ndarray = BODY, mutation: str | None = None, **rest: Any
) -> list[Round]:
    known(mutation, MUTATIONS)
    relaxes = {"every_round": lambda turn: True, "head_only": lambda turn: turn.opens & ~body}
    relaxes |= {"body_only": lambda turn: turn.opens & body}

    def start(turn: Turn) -> np.ndarray:
        offset = (-beta if mutation == "sign" else beta) * (turn.sent - turn.model)
        return turn.taken() + np.where(relaxes.get(mutation or "", lambda turn: turn.opens)(turn), offset, 0)

    return loop(f, start, alpha=alpha, body=body, **rest)
