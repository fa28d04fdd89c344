"""FedProx + FedCOG (FedCOG's Table 3): FedCOG's equation (3), and mu (y - x), x as it was sent, beside its gradient.

Under A.2.2's weights the proximal term, which is no loss on the client's data, is whole.
"""

from __future__ import annotations

from typing import Any

from .fedcog import EXAMPLE as ALONE
from .fedcog import Distillation
from .loop import Turn, loop
from .problem import Fixture, Round, known

EXAMPLE: dict = {**ALONE, "mu": 0.8}
MUTATIONS = {
    "scaled": "the pull scaled with the weight of the client's data",
    "own": "pulled towards the client's own last model",
}


def run(f: Fixture, mu: float = 0.1, weights: str = "uniform", mutation: str | None = None, **cog: Any) -> list[Round]:
    known(mutation, MUTATIONS)

    def along(turn: Turn) -> Any:
        made = Distillation(f, turn.t, turn.i, turn.sent, turn.model, turn.new, **cog)
        anchor, real = turn.model if mutation == "own" else turn.sent, made.real if mutation == "scaled" else 1.0
        return lambda y, k: made.gradient(y, turn.gradient(y, k), k) + real * mu * (y - anchor)

    return loop(f, along=along, weights=weights)
