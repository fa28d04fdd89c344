"""What an oracle's example makes of two problems, rightly read and wrongly: every run is made once in a process."""

from __future__ import annotations

from functools import cache

from oracles import ORACLES
from oracles.problem import Round, fixture

FIXTURES = {"even": fixture(0), "ragged": fixture(1, steps=4, ragged=True)}


@cache
def reading(oracle: str, problem: str, mutation: str | None = None) -> list[Round]:
    """The example's run; without a mutation, the right one."""
    return ORACLES[oracle].run(FIXTURES[problem], **ORACLES[oracle].EXAMPLE, mutation=mutation)
