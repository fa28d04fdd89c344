"""MOON + FedCOG (FedCOG's Table 3): in FedCOG's equation (3) the loss on the client's data is MOON's, contrast and all.

Both ask for the client's last model: MOON has no contrast, and FedCOG no disagreement, where there is none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .fedcog import EXAMPLE as ALONE
from .fedcog import Distillation
from .loop import Turn, loop
from .moon import contrast
from .problem import Fixture, Round, known

EXAMPLE: dict = {**ALONE, "mu": 2.0, "temperature": 0.5}
MUTATIONS = {
    "beside": "the contrast beside A.2.2's weights, not under that of the client's data",
    "swapped": "towards the last model, away from the global one",
    "generated": "the contrast once more, on the inputs that were made",
}


def run(
    f: Fixture,
    mu: float = 1.0,
    temperature: float = 0.5,
    weights: str = "uniform",
    mutation: str | None = None,
    **cog: Any,
) -> list[Round]:
    known(mutation, MUTATIONS)

    def along(turn: Turn) -> Any:
        made = Distillation(f, turn.t, turn.i, turn.sent, turn.model, turn.new, **cog)
        near, far = (turn.model, turn.sent) if mutation == "swapped" else (turn.sent, turn.model)

        def pull(y: np.ndarray, x: np.ndarray) -> np.ndarray | float:
            return 0.0 if turn.new else mu * contrast(y, near, far, x, temperature, None)

        def direction(y: np.ndarray, k: int) -> np.ndarray:
            task, own = turn.gradient(y, k), pull(y, f.x[turn.i][f.batches[turn.t, turn.i][k]])
            g = made.gradient(y, task, k) + own if mutation == "beside" else made.gradient(y, task + own, k)
            return g + made.weight * pull(y, made.u) if mutation == "generated" else g

        return direction

    return loop(f, along=along, weights=weights)
