"""Schedules that begin anew."""

from __future__ import annotations

import pytest

from apiece.errors import UserError
from apiece.language.schedules import Cosine, WarmRestarts


def test_warm_restarts_are_cosines_one_after_the_other():
    """Each period is a cosine over its own rounds, whatever the number of rounds: so a run may have more of them."""
    again, longer = WarmRestarts(4), WarmRestarts(2, growth=3, floor=0.1)
    assert [again(t, 5) for t in range(12)] == 3 * [Cosine()(t, 4) for t in range(4)]
    parts = [Cosine(0.1)(t, period) for period in (2, 6, 18) for t in range(period)]
    assert [longer(t, 1000) for t in range(26)] == parts
    for period, growth in ((0, 1), (3, 0)):
        with pytest.raises(UserError, match="give 1 or more"):
            WarmRestarts(period, growth)
