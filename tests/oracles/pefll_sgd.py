"""PeFLL as its algorithm 2 has it: the server's lines 17 and 18, and line 5's batch of its own (pefll.py)."""

from __future__ import annotations

from typing import Any

from . import pefll
from .problem import Fixture, Round, known

PARAMETERS = pefll.PARAMETERS
EXAMPLE: dict = {"lr": 0.1, "clip": None, "lambda_h": 0.3, "lambda_v": 0.2, "descriptor": "batch", "server": "sgd"}
MUTATIONS = {
    "first": "the descriptor of the round's first batch (line 5 as line 10's first step)",
    "another_batch": "line 14's d phi on another batch than line 6's descriptor",
    "whole": "the descriptor of all data",
    "no_decay": "lines 17 and 18 without the factor 1 - 2 beta lambda",
    "by_lr": "beta the server's own step size, not the clients'",
    "undecayed": "beta the clients' step size of round 0",
    "sign": "delta = new - old taken as a gradient",
}


def run(f: Fixture, mutation: str | None = None, **given: Any) -> list[Round]:
    known(mutation, MUTATIONS)
    given = given | ({"descriptor": "first"} if mutation == "first" else {})
    return pefll.run(f, mutation=mutation, mutations=MUTATIONS, **given)
