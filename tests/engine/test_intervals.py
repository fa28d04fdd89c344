"""Groups that are synchronized at different times, or never: what begins, rests and is counted in each."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from support.helpers import KEEPS_ALL, FullBatch, clusters, federate, gap, mlp, models, run
from support.laws import ALL, SOME, schedules
from torch import nn

from apiece.algebra.composition import Alternate, Period, algorithm
from apiece.algebra.message import Uniform
from apiece.algebra.periods import NEVER
from apiece.algebra.piece import Piece
from apiece.language import algorithms as named
from apiece.pieces.proximal import Proximal
from apiece.pieces.relaxed_init import RelaxedInit


def test_a_period_is_a_longer_round_of_the_statistics_too():
    """An interval of BatchNorm's statistics begins with the server's, which a full cohort's mean would hide."""
    (short, long), net = schedules(2, 3), nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))
    slow = run(
        federate(algorithm(Period("*", 2), name="slow"), net), clusters(), short, [SOME[t // 2] for t in range(6)]
    )
    quick = run(federate(named.fedavg(), net), clusters(), long, SOME[:3])
    assert max(gap(a.buffers, b.buffers) for a, b in zip(slow.servers[::2], quick.servers, strict=True)) < 1e-12
    assert gap(slow.servers[2].buffers, slow.servers[4].buffers) > 1e-3


def test_nothing_is_sent_of_what_is_not_due_whatever_a_piece_adds_to_it():
    """A relaxed start that is added to what leaves would be there in every round of its interval."""
    subject = algorithm(RelaxedInit(0.2, "delta"), Period("body", 2), Period("0.bias", NEVER), name="groups")
    ran = run(federate(subject, mlp()), clusters(), FullBatch(2), SOME)
    periods = ran.clients.federated.setup.periods
    for t, answer in enumerate(ran.answers):
        assert torch.equal(answer.mean.delta != 0, periods.closes(t))


@dataclass(frozen=True)
class Counting(Piece):
    """Says for every parameter how many steps it took since its interval began."""

    @classmethod
    def neutral(cls):
        return "it is for a test"

    def report(self, view):
        return Uniform(view.steps + torch.zeros_like(view.end))


@pytest.mark.parametrize("p", [1, 2])
def test_steps_are_those_that_moved_a_parameter_since_its_interval_began(p):
    """Five a round, the head's two before the others' three: twice as many after a second round of one interval."""
    subject = algorithm(Counting(), Alternate("head", 2), Period("body", p), name="counted")
    ran = run(federate(subject, mlp(), weighting="uniform"), clusters(), FullBatch(5), ALL * p)
    head = ran.clients.federated.setup.task.space.select("head")
    assert torch.equal(ran.answers[-1].mean.reports[0].x, torch.where(head, 2.0, 3.0 * p).double())


def test_without_a_relaxed_start_fedprox_has_one_center_for_every_group():
    """The server's model, where an interval opened, is where training began; a personal head has its start alone."""
    start, server = (
        run(
            federate(algorithm(Proximal(0.5, center), Period("body", 2), Period("head", NEVER), name=center), mlp(),
                     watch=KEEPS_ALL),
            clusters(), FullBatch(3), SOME,
        )
        for center in ("start", "server")
    )  # fmt: skip
    assert torch.equal(start.last, server.last) and torch.equal(models(start), models(server))
