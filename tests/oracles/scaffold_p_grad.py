"""Scaffold-P whose variates start as gradients: scaffold_p.py with a first round that takes them and moves nothing."""

from __future__ import annotations

from typing import Any

from . import scaffold_p
from .problem import Fixture, Round, known

EXAMPLE: dict = {**scaffold_p.EXAMPLE, "init_control": "grad"}
STILL = 1  # rounds that move no model
MUTATIONS = {
    "zero": "the variates start at 0",
    "only_cohort": "those of the first round's cohort alone start as gradients",
    "clients_only": "c_i start as gradients, and c at 0",
    "along": "the gradients along local steps, not all at the initial model",
}


def run(f: Fixture, mutation: str | None = None, **given: Any) -> list[Round]:
    known(mutation, MUTATIONS)
    given = given | ({"init_control": "zero"} if mutation == "zero" else {})
    return scaffold_p.run(f, mutation=mutation, mutations=MUTATIONS, **given)
