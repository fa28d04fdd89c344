"""The time limit of fast tests: it counts the test's own seconds, and none of the collector's."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import pytest
from support import tiers


def busy(seconds: float) -> None:
    """Use the processor for so long."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[tiers.Moment], None]:
    """The refusal with a limit of 0.05 seconds, which holds for the call alone: the tests here have the usual one."""

    def refused(began: tiers.Moment) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(tiers, "MOST", 0.05)
            patch.setattr(tiers, "slowness", lambda: 1.0)
            tiers.refuse_slow(began)

    return refused


def test_a_test_of_its_own_seconds_is_refused(refuse: Callable[[tiers.Moment], None]) -> None:
    began = tiers.Moment.now()
    busy(0.2)
    with pytest.raises(pytest.fail.Exception, match="mark it `slow`"):
        refuse(began)


def test_the_collectors_seconds_are_not_the_tests(refuse: Callable[[tiers.Moment], None]) -> None:
    class Left:
        """One half of a circle that takes long to clear."""

        def __del__(self) -> None:
            busy(0.2)

    one = Left()
    one.circle = one  # pyright: ignore[reportAttributeAccessIssue]
    del one
    began, processor = tiers.Moment.now(), time.process_time()
    gc.collect()
    assert time.process_time() - processor >= 0.2
    refuse(began)
