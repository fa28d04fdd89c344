"""What an oracle's example makes of two problems, rightly read and wrongly: every run is made once in a process."""

from __future__ import annotations

from functools import cache
from typing import Any

from oracles import ORACLES
from oracles.problem import Fixture, Round, fixture

from support.against import amplified, build, follow, furthest

FIXTURES = {"even": fixture(0), "ragged": fixture(1, steps=4, ragged=True)}


@cache
def reading(oracle: str, problem: str, mutation: str | None = None) -> list[Round]:
    """The example's run; without a mutation, the right one."""
    return ORACLES[oracle].run(FIXTURES[problem], **ORACLES[oracle].EXAMPLE, mutation=mutation)


TIGHT, ROUNDING, SHOWS = 1e-10, 10, 1e-4


@cache
def followed(oracle: str, problem: str) -> list[Round]:
    """The example's run on apiece, sequentially, made once in a process for all that compare something with it."""
    hyper = ORACLES[oracle].EXAMPLE
    return follow(build(oracle, **hyper), FIXTURES[problem], **hyper)[1]


def off(ours: list[Round], oracle: str, f: Fixture, **hyper: Any) -> float:
    """How far ours is from the oracle's run beyond what rounding makes: 0 where they are equal but for that."""
    away = furthest(ours, ORACLES[oracle].run(f, **hyper))
    if away < TIGHT:
        return 0.0
    rounding = min(ROUNDING * amplified(oracle, f, **hyper), SHOWS / 1000)
    return max(away - rounding, 0.0)
