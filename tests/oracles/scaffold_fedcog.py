"""SCAFFOLD + FedCOG (FedCOG's Table 3): SCAFFOLD's algorithm 1, option II, on FedCOG's equation (3).

What SCAFFOLD calls the client's gradient is that of all the client minimizes, so that
c_i+ = c_i - c + (x - y_i)/(K lr_t) holds the distillation's as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .fedcog import EXAMPLE as ALONE
from .fedcog import Distillation
from .loop import Turn, Variates, loop
from .problem import Fixture, Round, known

EXAMPLE: dict = {**ALONE, "server_lr": 0.9}
MUTATIONS = {
    "task_only": "variates of the task's gradient, the distillation beside them uncorrected",
    "scaled": "the correction scaled with the task's weight",
}


def run(
    f: Fixture, weights: str = "uniform", server_lr: float = 1.0, mutation: str | None = None, **cog: Any
) -> list[Round]:
    known(mutation, MUTATIONS)
    c, tasks, real = Variates(f), np.zeros((f.clients, len(f.initial))), np.ones(f.clients)

    def along(turn: Turn) -> Any:
        made, tasks[turn.i] = Distillation(f, turn.t, turn.i, turn.sent, turn.model, turn.new, **cog), 0
        real[turn.i] = made.real if mutation == "scaled" else 1

        def direction(y: np.ndarray, k: int) -> np.ndarray:
            task = turn.gradient(y, k)
            tasks[turn.i] += task
            return made.gradient(y, task, k) + real[turn.i] * (c.server - c.clients[turn.i])

        return direction

    def variate(turn: Turn) -> np.ndarray:
        if mutation == "task_only":
            return tasks[turn.i] / turn.steps
        gradients = (turn.start - turn.end) / (turn.steps * turn.lr)
        return gradients - real[turn.i] * (c.server - c.clients[turn.i])

    server = lambda x, mean, turns: x + server_lr * mean
    return loop(f, along=along, server=c.moving(variate, mutation, server), variates=c, weights=weights)
