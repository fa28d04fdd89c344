"""Data made ahead are the data, in any order of asking, and each once; who is no longer expected is forgotten."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest
import torch

from apiece import federate
from apiece.data.ahead import MOST, Ahead
from apiece.data.federation import MadeFederation


class Source:
    """What was made, and by which thread."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self.here: list[int] = []
        self.threads: set[int] = set()

    def __call__(self, client: int) -> int:
        if client < 0:
            raise OSError("no such file")
        self.made.append(client)
        if threading.current_thread() is threading.main_thread():
            self.here.append(client)
        self.threads.add(threading.get_ident())
        return 10 * client


def test_what_is_expected_is_made_elsewhere_and_once():
    source = Source()
    ahead = Ahead(source)
    ahead.expect(range(40))
    assert [ahead.take(client) for client in range(40)] == [10 * client for client in range(40)]
    assert source.made == list(range(40)) and source.threads.isdisjoint({threading.get_ident()})
    assert ahead.take(7) == 70 and threading.get_ident() in source.threads  # nobody expected it again


def test_round_by_round_everything_is_made_once_and_elsewhere():
    """The next cohort is expected as each begins; all but the first, whom nobody expected, are made ahead."""
    source, size = Source(), 3 * MOST
    ahead, cohorts = Ahead(source), [range(size * t, size * (t + 1)) for t in range(6)]
    for now, following in pairwise(cohorts):
        ahead.expect(following)
        here = len(source.here)
        assert [ahead.take(client) for client in now] == [10 * client for client in now]
        assert len(source.here) == (size if now == cohorts[0] else here)
    ahead._thread.submit(int).result()
    assert sorted(source.made) == list(range(5 * size + MOST))


def test_so_many_wait_and_no_more():
    source = Source()
    ahead = Ahead(source)
    ahead.expect(range(3 * MOST))
    ahead._thread.submit(int).result()  # all before it are done
    assert source.made == list(range(MOST))


def test_who_was_not_asked_does_not_stand_in_the_way():
    """The last expectation and the one before it count; a client in both is made again only where it was taken."""
    source = Source()
    ahead = Ahead(source)
    ahead.expect(range(MOST))  # of whom none is taken
    ahead.expect([100, 3])
    ahead.expect([3, 200])
    assert [ahead.take(client) for client in (100, 3, 200)] == [1000, 30, 2000]
    assert source.made.count(3) == 1 and not ahead._made


def test_an_error_is_met_where_the_data_are_asked_for():
    ahead = Ahead(Source())
    ahead.expect([-1, 2])
    with pytest.raises(OSError, match="no such file"):
        ahead.take(-1)
    assert ahead.take(2) == 20


@pytest.mark.parametrize("lift", ["sequential", "threaded", "vectorized"])
def test_a_run_is_the_same_and_makes_the_data_of_the_next_cohort_meanwhile(lift):
    module = torch.nn.Linear(2, 2)

    def run(known: bool) -> tuple[dict[str, torch.Tensor], Source]:
        source = Source()

        def make(client: int) -> tuple[torch.Tensor, torch.Tensor]:
            x = torch.arange(12.0).reshape(6, 2) / 12 + source(client) / 1000
            return x, torch.arange(6) % 2

        place = MadeFederation(make, 30, 6, make(0))
        if not known:
            object.__setattr__(place, "expect", lambda clients: None)
        made = federate(module, clients=place, algorithm="scaffold", cohort=20, rounds=3, steps=2,
                        absent=0.2, lift=lift, workers=2)  # fmt: skip
        return made.model(), source

    (ahead, one), (asked, other) = run(True), run(False)
    assert all(torch.equal(ahead[name], asked[name]) for name in ahead)
    assert sorted(one.made) == sorted(other.made)
