"""FedProx + relaxed initialization, the center at the server's model: FedProx's equation (2) as it stands.

start_i = x + beta (x - last_i);  K times  y <- y - lr_t (g(y) + mu (y - x)).  This is what fedprox_fedinit.py has for a
wrong reading.
"""

from __future__ import annotations

from typing import Any

from . import fedprox_fedinit as relaxed
from .problem import Fixture, Round, known

EXAMPLE: dict = relaxed.EXAMPLE
MUTATIONS = {
    "start": "pulled towards where the client started",
    "last": relaxed.MUTATIONS["last"],
}


def run(f: Fixture, mutation: str | None = None, **given: Any) -> list[Round]:
    known(mutation, MUTATIONS)
    return relaxed.run(f, mutation={None: "sent", "start": None, "last": "last"}[mutation], **given)
