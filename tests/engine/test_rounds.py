"""What a round does with those who are silent, have no step, come back, or are many; and FedALS on the server."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from support.helpers import KEEPS_ALL, clusters, federate, gap, mlp, models, run
from torch import nn

from apiece.algebra.composition import Period, Server, algorithm
from apiece.algebra.message import Uniform
from apiece.algebra.optim import AdamW, Freeze, Sgd
from apiece.algebra.piece import Piece
from apiece.algebra.server_optim import Adam, Momentum
from apiece.data.federation import MadeFederation
from apiece.engine.clients import BadClient, Clients
from apiece.engine.state import Plan
from apiece.engine.work import Between, Work
from apiece.errors import UserError
from apiece.language import algorithms as named
from apiece.lifts.lift import Sequential, Threaded, Vectorized
from apiece.pieces.scaffold import Scaffold

WORK = Work(2, None, 4)
SOME = [(0, 1, 2), (2, 3), (1, 4), (0, 3, 4), (1, 2), (0, 2, 4)]
RICH = named.scaffold() + named.fedals(2) + named.relaxed_init() + algorithm(Server(Adam()), name="adam")
SUBJECTS = [named.fedavg(), named.scaffold_p(), RICH]


def leaves(server: Any) -> list[torch.Tensor]:
    return torch.utils._pytree.tree_leaves(server[1:])


def same(one: Any, two: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(leaves(one), leaves(two), strict=True))


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda a: a.name)
def test_a_round_in_which_none_answers_moves_only_the_counter(subject):
    digests, absent = [], {1: {2, 3}, 3: {0, 3, 4}}
    look = lambda t, clients: digests.append(clients.rows.digest())
    ran = run(federate(subject, mlp()), clusters(), WORK, SOME[:4], absent=absent, after=look)
    for t in (1, 3):
        assert same(ran.servers[t], ran.servers[t + 1]) and ran.servers[t + 1].round == t + 1
        assert digests[t] == digests[t - 1] and ran.answers[t].answered == []


@pytest.mark.parametrize("lift", [Sequential(), Vectorized(2)], ids=lambda lift: type(lift).__name__)
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda a: a.name)
def test_answers_that_weigh_nothing_together_are_none(subject, lift):
    """Their mean would be 0/0. Beside an answer that weighs something, one that does not is counted."""
    digests, light = [], lambda samples: 0.0 if samples in (5, 26) else float(samples)
    look = lambda t, clients: digests.append(clients.rows.digest())
    cohorts = [(0, 1, 2), (1, 2), (0, 3)]
    ran = run(federate(subject, mlp(), weighting=light), clusters(), WORK, cohorts, lift=lift, after=look)
    assert same(ran.servers[1], ran.servers[2]) and digests[0] == digests[1]
    assert [answer.answered for answer in ran.answers] == [[0, 1, 2], [], [0, 3]]
    assert all(leaf.isfinite().all() for leaf in leaves(ran.servers[-1]) if leaf.is_floating_point())


# subjects catch a part of the row that is written anyway, lifts a stack that writes all its rows
@pytest.mark.parametrize("lift", [Sequential(), Vectorized(2)], ids=lambda lift: type(lift).__name__)
@pytest.mark.parametrize("subject", SUBJECTS[1:], ids=lambda a: a.name)
def test_a_silent_clients_row_is_untouched(subject, lift):
    rows = []
    look = lambda t, clients: rows.append((clients.row(0), clients.row(3)))
    run(federate(subject, mlp()), clusters(), WORK, SOME, absent={3: {0}}, lift=lift, after=look)
    (before, seen), (after, still) = rows[2][0], rows[3][0]
    assert seen == still == 0 and all(torch.equal(before[k], after[k]) for k in before)
    assert rows[3][1][1] == 3  # while who answered was counted


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda a: a.name)
def test_a_client_without_a_step_counts_as_absent(subject):
    data = clusters()
    work = Work(Between(0, 2), None, 4)
    idle = {
        t: {c for c in cohort if not work.count(0, t, data.names[c], data.size(c))} for t, cohort in enumerate(SOME)
    }
    assert any(idle.values()) and not all(idle.values())
    asked = run(federate(subject, mlp()), data, work, SOME)
    spared = run(
        federate(subject, mlp()), data, work, [[c for c in cohort if c not in idle[t]] for t, cohort in enumerate(SOME)]
    )
    assert same(asked.servers[-1], spared.servers[-1]) and asked.clients.rows.digest() == spared.clients.rows.digest()
    assert [a.answered for a in asked.answers] == [
        [c for c in cohort if c not in idle[t]] for t, cohort in enumerate(SOME)
    ]


def test_a_client_without_samples_counts_as_absent():
    ran = run(federate(named.scaffold(), mlp()), clusters((12, 0, 9)), WORK, [(0, 1, 2)])
    assert ran.answers[0].answered == [0, 2] and ran.clients.last_round(1) == -1


def test_a_bad_client_stops_the_run_or_is_left_out():
    data = clusters()
    data.pool[0][data.train[2]] = float("nan")
    with pytest.raises(BadClient, match="'c2' became non-finite in round 1.*mu=0.3"):
        run(federate(named.fedprox(0.3), mlp()), data, WORK, SOME)
    skipped = run(federate(RICH, mlp()), data, WORK, [(0, 1, 2), (0, 2)], on_bad_client="skip")
    without = run(federate(RICH, mlp()), data, WORK, [(0, 1), (0,)])
    assert (
        same(skipped.servers[-1], without.servers[-1])
        and skipped.clients.rows.digest() == without.clients.rows.digest()
    )
    none = run(federate(RICH, mlp()), data, WORK, [(2,)], on_bad_client="skip")
    assert same(*none.servers) and none.clients.rows.touched() == []


@dataclass(frozen=True)
class Spoils(Piece):
    """Client 2 puts NaN into one part of what it says or keeps; its model stays as it was trained."""

    part: str

    @classmethod
    def neutral(cls):
        return "it is for a test"

    def client_memory(self, theta):
        return theta.new_zeros(3)

    def _bad(self, view):
        return torch.where(torch.as_tensor(view.who) == 2, torch.nan, view.end.new_zeros(()))

    def report(self, view):
        return Uniform(self._bad(view)) if self.part == "report" else Uniform(view.end.new_zeros(()))

    def remember(self, view):
        return view.client + self._bad(view) if self.part == "memory" else view.client

    def upload(self, view, message):
        if self.part not in ("buffers", "weight"):
            return message
        return message._replace(**{self.part: getattr(message, self.part) + self._bad(view)})


# parts catch what is sent or kept unlooked at, lifts a look at the stack and not at each client
@pytest.mark.parametrize("lift", [Sequential(), Threaded(2), Vectorized(2)], ids=lambda lift: type(lift).__name__)
@pytest.mark.parametrize("part", ["report", "memory", "buffers", "weight"])
def test_all_that_leaves_a_client_or_is_kept_is_looked_at(part, lift):
    """What is not finite outside the model counts as much as in it, under every lift."""
    subject = algorithm(Spoils(part), name="spoils")
    normed = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3))
    with pytest.raises(BadClient, match="'c2' became non-finite in round 1"):
        run(federate(subject, normed), clusters(), WORK, SOME, lift=lift)
    skipped = run(federate(subject, normed), clusters(), WORK, [(0, 1, 2)], lift=lift, on_bad_client="skip")
    assert skipped.answers[0].skipped == [2] and skipped.clients.rows.touched() == [0, 1]
    assert all(torch.isfinite(leaf).all() for leaf in leaves(skipped.servers[-1]))


def test_statistics_that_overflow_are_no_answer():
    """A feature of 1e30 leaves BatchNorm's outputs and every gradient finite, and makes its variance infinite."""
    data = clusters(dtype=torch.float32)
    data.pool[0][data.train[2]] *= 1e30
    normed = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))
    with pytest.raises(BadClient, match="'c2' became non-finite in round 1"):
        run(federate(named.fedavg(), normed, dtype=torch.float32), data, WORK, SOME)


# --- FedALS ---------------------------------------------------------------------------------------------------------
def test_alpha_of_one_is_fedavg_bitwise():
    one = run(federate(algorithm(Period("body", 1), name="one"), mlp()), clusters(), WORK, SOME)
    assert all(
        same(a, b)
        for a, b in zip(one.servers, run(federate(named.fedals(1), mlp()), clusters(), WORK, SOME).servers, strict=True)
    )
    assert torch.equal(one.last, run(federate(named.fedavg(), mlp()), clusters(), WORK, SOME).last)


@pytest.mark.parametrize("server", [Momentum(), Adam()], ids=repr)
def test_the_body_rests_on_the_server_between_synchronizations(server):
    """Bitwise, with the optimizer's state and the control variate of it; the head moves in every round."""
    ran = run(federate(named.fedals(3) + named.scaffold(), mlp(), server=server), clusters(), WORK, SOME)
    body = ran.clients.federated.setup.periods.every == 3
    for t, (before, after) in enumerate(zip(ran.servers, ran.servers[1:], strict=False)):
        for a, b in zip(leaves(before), leaves(after), strict=True):
            if len(a):
                assert torch.equal(a[body], b[body]) == ((t + 1) % 3 != 0) and not torch.equal(a[~body], b[~body])


@pytest.mark.parametrize("cohort", ["held", "redrawn"])
def test_everyone_starts_from_one_body_after_a_synchronization(cohort):
    """Who takes part in an interval's first round begins with the server's body; who goes on has its own, still."""
    subject = named.fedals(3, cohort=cohort)
    assert subject.cohort == cohort and (subject + named.scaffold()).cohort == cohort
    cohorts = [SOME[t - t % 3] for t in range(6)] if cohort == "held" else SOME
    sent, kept = [], []

    def look(t, clients):
        sent.append({c: clients.row(c)[0]["sent"] for c in cohorts[t]})
        kept.append({c: clients.row(c)[0]["model"][clients.federated.setup.periods.slow] for c in cohorts[t]})

    ran = run(federate(subject, mlp(), watch=KEEPS_ALL, weighting="uniform"), clusters(), WORK, cohorts, after=look)
    slow = ran.clients.federated.setup.periods.slow
    for t, models_ in enumerate(
        sent
    ):  # what a client was sent at the start of its interval is the server's body, all through it
        assert all(torch.equal(m, ran.servers[t].params[slow]) for m in models_.values())
    assert (
        gap(ran.servers[3].params[slow], torch.stack(list(kept[2].values())).mean(0)) < 1e-14
    )  # the closing cohort's mean
    assert min(gap(a, ran.servers[3].params[slow]) for a in kept[2].values()) > 1e-3


def test_held_and_redrawn_cohorts_are_two_algorithms():
    one, two = (
        run(federate(named.fedals(3), mlp()), clusters(), WORK, cohorts)
        for cohorts in (SOME, [SOME[t - t % 3] for t in range(6)])
    )
    assert gap(one.last, two.last) > 1e-3


# --- what a piece may know ------------------------------------------------------------------------------------------
class Newcomers(Piece):
    """Moves the models of those who take part for the first time."""

    reads = frozenset({"fresh"})

    def keep(self, view, theta):
        return torch.where(torch.as_tensor(view.fresh), theta + 1.0, theta)


class Second(Piece):
    """Where the engine's own local loop ends, from what was sent: a second training."""

    def keep(self, view, theta):
        return view.descend(view.sent)


@dataclass(frozen=True)
class Retrains(Piece):
    """Trains once more, as the values say."""

    values: Any

    def keep(self, view, theta):
        return view.descend(theta, **self.values(view))


@pytest.mark.parametrize("lift", [Sequential(), Vectorized(3)], ids=lambda lift: type(lift).__name__)
@pytest.mark.parametrize(
    "values, said",
    [
        (lambda view: {"batches": [view.data.all()] * 2}, "each is a tensor of row numbers .* and not tuple"),
        (lambda view: {"batches": [[0, 1]]}, "each is a tensor of row numbers .* and not list"),
        (lambda view: {"batches": [view.sent]}, "each is a tensor of row numbers .* and not Tensor"),
        (lambda view: {"correct": lambda g: g}, r"is called with \(scratch, g, theta, batch\).*, not \(g\)"),
    ],
    ids="pairs list numbers rule".split(),
)
def test_a_second_training_with_something_else_is_refused_in_words(lift, values, said):
    subject = federate(algorithm(Retrains(values), name="retrains"), mlp())
    with pytest.raises(UserError, match=f"view.descend .*{said}"):
        run(subject, clusters(), WORK, [(0, 1)], lift=lift)


@pytest.mark.parametrize("lift", [Sequential(), Vectorized(3)], ids=lambda lift: type(lift).__name__)
def test_a_client_is_fresh_once(lift):
    subjects = [federate(algorithm(*p, name="fresh"), mlp(), weighting="uniform") for p in ((Newcomers(),), ())]
    with_, without = (run(subject, clusters(), WORK, [(0, 1), (0, 1)], lift=lift) for subject in subjects)
    assert gap(with_.servers[1].params, without.servers[1].params + 1.0) < 1e-12
    again = federate(named.fedavg(), mlp(), weighting="uniform")
    start = with_.servers[1]
    expected = again.round(
        start._replace(memory={}), Clients(again, clusters(), WORK, 0, lift), Plan([0, 1], frozenset(), 0.1)
    )[0]
    assert gap(with_.servers[2].params, expected.params) < 1e-12


# clients catch an optimizer state carried over, lifts steps that another client has
@pytest.mark.parametrize("client", [Sgd(), Sgd(0.9, 0.01), AdamW()], ids=repr)
@pytest.mark.parametrize("lift", [Sequential(), Vectorized(5)], ids=lambda lift: type(lift).__name__)
def test_a_second_training_is_the_first_again(lift, client):
    subjects = [federate(algorithm(*p, name="second"), mlp(), client=client, clip=1.0) for p in ((Second(),), ())]
    work = Work(Between(1, 3), None, 4)
    one, two = (run(subject, clusters(), work, SOME, lift=lift) for subject in subjects)
    assert gap(one.last, two.last) < 1e-14


@pytest.mark.parametrize("lift", [Sequential(), Vectorized(5)], ids=lambda lift: type(lift).__name__)
def test_a_frozen_group_rests_while_it_is_frozen(lift):
    """FedRep's order: the head alone, then the body; decay and momentum rest too, the variate counts its own steps."""
    space = federate(named.fedavg(), mlp()).setup.task.space
    head, last = space.select("head"), []
    for count in (2, 1, 0):
        client = Freeze(Sgd(0.9, 0.1), head, count)
        subject = federate(algorithm(Scaffold(), name="f"), mlp(), client=client, watch=KEEPS_ALL)
        last.append(run(subject, clusters(), WORK, [(0, 1)], lift=lift))
    first = last[0].servers[0].params
    assert torch.equal(models(last[0])[0, ~head], first[~head]) and gap(models(last[0])[0, head], first[head]) > 1e-3
    assert torch.equal(models(last[2])[0, head], first[head]) and gap(models(last[2])[0, ~head], first[~head]) > 1e-3
    assert min(gap(models(last[1])[0, part], first[part]) for part in (head, ~head)) > 1e-3
    variate = last[0].clients.row(0)[0]["memory.Scaffold.variate"]
    assert torch.isfinite(last[0].last).all() and (variate[~head] == 0).all()


# --- clients whose data are made when asked ---------------------------------------------------------------------------
@dataclass
class Counted:
    """A lift that counts the calls of its operations."""

    inner: Any
    calls: int = 0

    def run(self, operation, shared, tasks):
        def counted(*arguments):
            self.calls += 1
            return operation(*arguments)

        return self.inner.run(counted, shared, tasks)


# subjects catch draws made for another shape, shapes calls that are not split
@pytest.mark.parametrize("subject", [RICH, named.fedcog(steps=2, samples=6)], ids=lambda a: a.name)
@pytest.mark.parametrize(("shapes", "calls"), [(1, 3), (2, 6)])
def test_made_data_are_stacked_where_their_shapes_agree(subject, shapes, calls):
    """Ten clients, at most four a call: three calls; where there are two shapes, each of the three holds both."""
    data = clusters((9,) * 10)

    def make(client):
        spare = client % shapes  # a sample that nobody reads
        return tuple(torch.cat([leaf[data.train[client]], leaf[:spare]]) for leaf in data.pool)

    place, ran = MadeFederation(make, 10, 9, ()), []
    for lift in (Counted(Sequential()), Counted(Vectorized(4))):
        ran.append(run(federate(subject, mlp(), watch=KEEPS_ALL), place, WORK, [range(10)], lift=lift))
    assert lift.calls == calls and gap(ran[0].last, ran[1].last) < 1e-10
    assert gap(models(ran[0]), models(ran[1])) < 1e-10


@pytest.mark.parametrize("subject", [named.fedavg(), RICH], ids=lambda a: a.name)
def test_calls_in_threads_change_nothing(subject):
    """Which clients share a call is the same for any number of workers: no more than rounding tells them apart."""
    data = clusters((9, 12, 9, 9, 7, 9, 10, 9, 9, 9))
    one, more = (
        run(federate(subject, mlp(), watch=KEEPS_ALL), data, WORK, [range(10)] * 2, lift=Vectorized(2, workers))
        for workers in (1, 3)
    )
    assert gap(one.last, more.last) < 1e-12 and gap(models(one), models(more)) < 1e-12


# --- many clients ---------------------------------------------------------------------------------------------------
@dataclass
class Watched:
    """A lift that counts how many of its replies are alive at once."""

    inner: Any
    alive: set = field(default_factory=set)
    most: int = 0

    def run(self, operation, shared, tasks):
        for number, reply in enumerate(self.inner.run(operation, shared, tasks)):
            self.alive.add(number)
            weakref.finalize(reply.message.delta.x, self.alive.discard, number)
            self.most = max(self.most, len(self.alive))
            yield reply
            del reply


# lifts catch answers held until the last, subjects rows that are
@pytest.mark.parametrize(
    "inner, bound", [(Sequential(), 4), (Threaded(2), 12), (Vectorized(4), 12)], ids=["loop", "threads", "vmap"]
)
@pytest.mark.parametrize("subject", [named.fedavg(), named.scaffold()], ids=lambda a: a.name)
def test_memory_does_not_grow_with_the_cohort(subject, inner, bound):
    """Replies are summed as they arrive: as many are alive with eighty clients as with sixteen."""
    most = []
    for count in (16, 80):
        data = MadeFederation(
            lambda c: (torch.full((4, 6), c / 80, dtype=torch.float64), torch.arange(4) % 3), count, 4, ()
        )
        lift = Watched(inner)
        run(federate(subject, mlp()), data, Work(1, None, 4), [range(count)], lift=lift)
        most.append(lift.most)
    assert most[1] <= bound and most[1] <= most[0] + 2
