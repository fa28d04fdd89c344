"""Processes that are kept running: when one that ended is started again."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from apiece.deploy import supervise
from apiece.deploy.supervise import OFTEN, PATIENCE, RARELY, SOON, Kept


def test_what_ends_early_is_started_again_often_and_later_rarely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock, said = [100.0], list[str]()
    monkeypatch.setattr(supervise, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    kept = Kept("it", ["true"], dict(os.environ), tmp_path / "log", said.append, quick=10.0)

    def ended(after: float) -> float:
        """The wait before another start of a process that ended so many seconds after its start."""
        kept.look()
        assert kept.process is not None
        kept.process.wait()
        clock[0] += after
        kept.look()
        wait, clock[0] = kept.due - clock[0], kept.due
        return wait

    waits = [ended(1.0) for _ in range(20)]
    often = int(PATIENCE // (1.0 + OFTEN))
    assert waits == [OFTEN] * often + [RARELY] * (20 - often) and len(said) == 20
    assert said[0] == f"it ended with 0; see {tmp_path / 'log'}. It is started again in 5 seconds."
    assert ended(11.0) == SOON and ended(1.0) == OFTEN
