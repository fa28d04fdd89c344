"""FedALS + FedCOG: fedals_fedinit_fedcog.py where nothing is relaxed."""

from __future__ import annotations

from typing import Any

from . import fedals_fedinit_fedcog as relaxed
from .problem import Fixture, Round, known

EXAMPLE: dict = {name: value for name, value in relaxed.EXAMPLE.items() if name != "beta"}
MUTATIONS = {name: relaxed.MUTATIONS[name] for name in ("own_body", "always_sent")}


def run(f: Fixture, mutation: str | None = None, **given: Any) -> list[Round]:
    known(mutation, MUTATIONS)
    return relaxed.run(f, beta=0.0, mutation=mutation, **given)
