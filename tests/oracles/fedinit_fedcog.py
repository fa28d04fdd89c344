"""Relaxed initialization + FedCOG: fedals_fedinit_fedcog.py where all is averaged in every round."""

from __future__ import annotations

from typing import Any

from . import fedals_fedinit_fedcog as slow
from .problem import Fixture, Round, known

EXAMPLE: dict = {name: value for name, value in slow.EXAMPLE.items() if name != "alpha"}
MUTATIONS = {name: slow.MUTATIONS[name] for name in ("relaxed", "sign")}


def run(f: Fixture, mutation: str | None = None, **given: Any) -> list[Round]:
    known(mutation, MUTATIONS)
    return slow.run(f, alpha=1, mutation=mutation, **given)
