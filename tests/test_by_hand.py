"""What a program makes of its own beside `federate`: an experiment with another plan, rounds one by one, a look."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
from outer import config

from driftless import report
from driftless.assemble import Experiment, assemble
from driftless.run import execute
from driftless.state import Plan


@pytest.fixture(autouse=True)
def no_report(monkeypatch):
    monkeypatch.setattr(report, "write_report", lambda *_: None)


# --- a plan of one's own ---------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Listed(Experiment):
    """An experiment whose rounds stand in a list, and there are no others."""

    plans: tuple[Plan, ...] = ()

    def plan(self, round: int) -> Plan:
        return self.plans[round]

    def lr(self, round: int) -> float:
        raise AssertionError("the step size of a round stands in its plan")


def listed(*plans: Plan, **settings: Any) -> Listed:
    made = assemble(config(rounds=len(plans), **settings))
    return Listed(**{field.name: getattr(made, field.name) for field in fields(made)}, plans=plans)


@pytest.mark.parametrize("lift", ["sequential", "vectorised", "auto"])
def test_nobody_asks_for_the_plan_of_a_round_that_is_none(tmp_path: Path, lift):
    plans = [Plan([0, 2], frozenset(), 0.1), Plan([1, 2, 3], frozenset({3}), 0.05)]
    result = execute(listed(*plans, lift=lift), tmp_path / "run")
    assert [(info["cohort"], info["answered"]) for info in result.metrics] == [(2, 2), (3, 2)]
    (tmp_path / "run" / "model.safetensors").unlink()
    again = execute(listed(*plans, lift=lift), tmp_path / "run", resume=True)
    assert again.accuracy == result.accuracy
