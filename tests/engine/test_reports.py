"""What the server makes of reports, of words and cohorts that it does not know, and of parameters that rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from support.helpers import clusters, federate, gap, mlp, run
from torch import nn

from apiece.algebra.composition import Period, Server, algorithm
from apiece.algebra.message import PerClient, Sum, Uniform, Weighted
from apiece.algebra.optim import AdamW, OnServer
from apiece.algebra.parts import Cohort, Phase
from apiece.algebra.piece import Piece
from apiece.engine.work import Between, Work
from apiece.errors import UserError
from apiece.language import algorithms as named
from apiece.lifts.lift import Sequential, Vectorized

WORK = Work(2, None, 4)
SIZES = (24, 3, 12)


@dataclass(frozen=True)
class Says(Piece):
    """Reports what `of` makes of the number of samples, in this mark; the server logs what it is given."""

    mark: Any
    of: Any = torch.as_tensor

    def report(self, view):
        return self.mark(self.of(view.data.size))

    def log(self, memory, g, report, share):
        return {"told": float(report.x.sum())}


def told(mark: Any, of: Any = torch.as_tensor) -> float:
    ran = run(federate(algorithm(Says(mark, of), name="says"), mlp()), clusters(SIZES), WORK, [range(3)])
    return ran.answers[0].logged["Says.told"]


def test_the_mean_of_whole_numbers_is_no_whole_number():
    assert told(Uniform) == 13.0 and told(Sum) == 39.0
    assert told(Uniform, lambda size: torch.as_tensor(size > 10)) == 2 / 3
    assert told(Weighted) == pytest.approx((24**2 + 3**2 + 12**2) / 39)


@pytest.mark.parametrize("mark", [Sum, Uniform, Weighted, PerClient])
@pytest.mark.parametrize("least", [10, 20])
def test_a_report_has_one_shape_at_all_clients(mark, least):
    """Tensors [1] and [5] could be added, and their sum would be of neither."""
    with pytest.raises(UserError, match=r"a client sent a .* of shape \[\d\] .*: give a report the same shape"):
        told(mark, lambda size: torch.ones(1 if size < least else 5))


@pytest.mark.parametrize("every", [2, 3])
def test_adam_on_the_server_counts_the_rounds_in_which_a_group_moved(every):
    """Its first step is as long as the step size, whenever it comes: bias correction is by the steps taken."""
    subject = algorithm(Period("*", every), Server(OnServer(AdamW(weight_decay=0.0), lr=0.1)), name="late")
    federated = federate(subject, nn.Linear(6, 3))
    ran = run(federated, clusters(SIZES), WORK, [range(3)] * every)
    moved = (ran.last - federated.start().params).abs()
    assert gap(ran.servers[every - 1].params, federated.start().params) == 0
    assert abs(float(moved.max()) - 0.1) < 1e-6


@pytest.mark.parametrize("control", ["mean_gradient", "difference"])
def test_a_parameter_that_took_no_step_keeps_its_control_variate(control):
    """FedRep's body rests in a round of one step: the head has it alone."""
    subject = federate(named.scaffold(control) + named.fedrep(), mlp())
    body, kept = ~subject.setup.task.space.select("head"), []

    def look(t: int, clients: Any) -> None:
        kept.append(clients.read(clients.row(0)[0]).memory["Scaffold"].variate[body])

    class Fewer(Work):
        def count(self, seed: int, round: int, name: str, samples: int) -> int:
            return 4 if round == 0 else 1

    run(subject, clusters(SIZES), Fewer(4, None, 3), [range(3)] * 2, after=look)
    assert float(kept[0].norm()) > 1e-3 and gap(*kept) == 0


def test_a_weight_is_the_same_number_in_a_stack():
    subjects = [federate(named.fedavg(), mlp(), weighting=lambda n: n**0.5) for _ in range(2)]
    lifts = Sequential(), Vectorized(3)
    one, two = (run(s, clusters(SIZES), WORK, [range(3)], lift=lift) for s, lift in zip(subjects, lifts, strict=True))
    assert gap(one.last, two.last) < 1e-12


@pytest.mark.parametrize(
    "make",
    [
        lambda: federate(named.fedavg(), mlp(), weighting="sample"),
        lambda: federate(named.fedavg(), mlp(), optimizer_state="keep"),
        lambda: federate(named.fedavg(), mlp(), watch=frozenset({"drfit"})),
        lambda: Cohort("hold"),
        lambda: Phase("first"),
        lambda: Work(steps=None),
        lambda: Work(steps=-2),
        lambda: Work(steps=True),
        lambda: Work(epochs=1.5),
        lambda: Work(batch=0),
        lambda: Between(1, 2.5),
        lambda: run(federate(named.fedavg(), mlp()), clusters(SIZES), WORK, [(0, 0)]),
        lambda: run(federate(named.fedavg(), mlp()), clusters(SIZES), WORK, [(-1,)]),
        lambda: run(federate(named.fedavg(), mlp()), clusters(SIZES), WORK, [(9,)]),
    ],
    ids="weighting state watch cohort phase no-steps steps bool epochs batch between twice negative beyond".split(),
)
def test_what_means_nothing_is_refused(make):
    with pytest.raises(UserError, match=r": (use|give) .*\.$"):
        make()
