"""Periods with an offset: groups that are synchronized in turn, by their definition and by what they are equal to."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from support.helpers import KEEPS_ALL, FullBatch, Given, Ran, clusters, federate, gap, mlp, models, run
from support.laws import ALL, CLIENTS, SOME
from torch.utils._pytree import tree_leaves

from apiece.algebra.composition import Algorithm, Cohort, InTurn, Period, Server, algorithm
from apiece.algebra.optim import AdamW, Sgd
from apiece.algebra.periods import NEVER, Schedule
from apiece.algebra.server_optim import Adam, Nesterov
from apiece.contract import check
from apiece.engine.work import Work
from apiece.errors import UserError
from apiece.language import algorithms as named
from apiece.lifts.lift import Sequential, Vectorized
from apiece.measure.global_average import global_model
from apiece.pieces.proximal import Proximal
from apiece.pieces.relaxed_init import RelaxedInit
from apiece.pieces.scaffold import Scaffold

WORK = Work(3, None, 4)


def ran(subject: Algorithm, cohorts: Any = SOME, work: Any = WORK, **settings: Any) -> Ran:
    lift = settings.pop("lift", None)
    return run(federate(subject, mlp(), **{"watch": KEEPS_ALL, **settings}), clusters(), work, cohorts, lift=lift)


def same(one: Ran, two: Ran) -> bool:
    pairs = zip(one.servers, two.servers, strict=True)
    servers = all(
        torch.equal(a, b) for s, t in pairs for a, b in zip(tree_leaves(s[1:]), tree_leaves(t[1:]), strict=True)
    )
    return servers and torch.equal(models(one), models(two)) and one.clients.digest() == two.clients.digest()


# leads catch an offset that is counted from the wrong round
@pytest.mark.parametrize("lead", [0, 1])
def test_what_opens_and_closes_by_the_definition(lead):
    """A group closes after rounds lead + offset, then every so many, counted from 1, and opens behind each of these."""
    pairs = [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2), (NEVER, 0), (4, 3)]
    every, offset = (torch.tensor([float(pair[k]) for pair in pairs]) for k in (0, 1))
    periods, last = Schedule(every, lead, offset), 13
    done = [{lead + o + n * p for n in range(-1, 14)} if p != NEVER else set() for p, o in pairs]  # rounds done by then
    for t in range(last):
        assert periods.closes(t).tolist() == [t + 1 in ends for ends in done]
        assert torch.equal(periods.returned(t).of(every), every[periods.closes(t)])
        for seen in range(-1, t):
            new = [seen < 0 or p == NEVER or any(seen < end <= t for end in ends) for (p, _), ends in zip(pairs, done)]
            opens = periods.opens(t, seen)
            assert opens.tolist() == new
            at = [pairs.index((cycle.every, cycle.begins - lead)) for cycle in periods.cycles]
            assert [new[k] for k in at] == list(periods.pattern(t, seen))
            assert torch.equal(periods.sent(t, seen).of(every), every[opens & periods.shared])
            stacked = torch.vmap(periods.opens)(torch.tensor([t, t]), torch.tensor([seen, -1]))
            assert torch.equal(stacked[0], opens) and bool(stacked[1].all())


PIECES = Scaffold(), RelaxedInit(0.2), Proximal(0.3)


def test_no_offset_and_a_whole_one_are_the_period_and_every_round_is_fedavg():
    for parts in ((), PIECES):
        plain = ran(algorithm(*parts, Period("body", 3), name="it"))
        for offset in (0, 3):
            assert same(plain, ran(algorithm(*parts, Period("body", 3, offset), name="it")))
        every_round = (ran(algorithm(*parts, *period, name="it")).last for period in ((), (Period("*", 1, 1),)))
        assert torch.equal(*every_round)


def test_blocks_of_one_period_and_offset_are_one_period():
    for parts in ((), PIECES):
        blocks = [Period(f"{order} {b}/2", 3, 1) for order in ("strided", "sequential") for b in (1, 2)]
        whole = ran(algorithm(*parts, Period("*", 3, 1), name="it"), server=Nesterov(0.9, 0.7))
        assert same(whole, ran(algorithm(*parts, *blocks[:2], name="it"), server=Nesterov(0.9, 0.7)))
        assert same(whole, ran(algorithm(*parts, *blocks[3:1:-1], name="it"), server=Nesterov(0.9, 0.7)))


def test_of_several_the_longest_holds_and_then_the_largest_offset_in_any_order():
    several = [Period("*", 2, 1), Period("body", 3), Period("0.bias", 3, 2), Period("0.bias", 3, 1)]
    for parts in (several, several[::-1]):
        setup = federate(algorithm(*parts, name="it"), mlp()).setup
        space = setup.task.space
        expected = torch.where(space.select("body"), 3.0, 2.0), torch.where(space.select("body"), 0.0, 1.0)
        expected[1][space.select("0.bias")] = 2.0
        assert torch.equal(setup.periods.every, expected[0])
        assert torch.equal(setup.periods.begins[setup.periods.group], expected[1])


# optimizers and pieces catch a state or a memory that begins anew before its interval does
@pytest.mark.parametrize("client, state", [(Sgd(), "fresh"), (AdamW(weight_decay=0.1), "kept")], ids=repr)
def test_an_offset_is_a_shorter_first_round(client, state):
    """Rounds of o, p, p steps' worth are what a period of p with the offset o makes of rounds of one."""
    rng, data, p, offset = torch.Generator().manual_seed(3), clusters(), 3, 2
    short = {
        (t, data.names[c]): torch.randint(data.size(c), (2, 4), generator=rng) for t in range(8) for c in range(CLIENTS)
    }
    cuts = [(0, offset), (offset, offset + p), (offset + p, offset + 2 * p)]
    long = {
        (n, name): torch.cat([short[t, name] for t in range(*cut)]) for n, cut in enumerate(cuts) for name in data.names
    }
    settings = {"client": client, "optimizer_state": state, "server": Nesterov(0.9, 0.7), "clip": 1.0}
    for parts in ((), (Scaffold(), RelaxedInit(0.2, "delta"))):
        slow = ran(algorithm(*parts, Period("*", p, offset), name="slow"), ALL * 8, Given(short), **settings)
        quick = ran(algorithm(*parts, name="quick"), ALL * 3, Given(long), **settings)
        ends = [slow.servers[cut[1]].params for cut in cuts]
        assert max(gap(a, s.params) for a, s in zip(ends, quick.servers[1:], strict=True)) < 1e-12
        assert gap(models(slow), models(quick)) < 1e-12


@pytest.mark.parametrize("server", [Nesterov(0.9, 0.7), Adam()], ids=repr)
def test_a_group_that_is_not_in_turn_rests_on_the_server_bitwise(server):
    """With its moments and its variate."""
    ends = ran(algorithm(Scaffold(), Period("body", 3, 1), Period("head", 3, 2), name="turns"), server=server)
    body = ends.clients.federated.setup.task.space.select("body")
    for t, (before, after) in enumerate(zip(ends.servers, ends.servers[1:], strict=False)):
        for a, b in zip(tree_leaves(before[1:]), tree_leaves(after[1:]), strict=True):
            if a.shape == body.shape:
                assert torch.equal(a[body], b[body]) == (t % 3 != 0) and torch.equal(a[~body], b[~body]) == (t % 3 != 1)


def test_the_virtual_average_is_over_those_who_trained_since_the_groups_own_turn():
    subject = algorithm(Period("body", 3, 1), Period("head", 3, 2), name="turns")
    federated = federate(subject, mlp(), watch=KEEPS_ALL)
    data, body = clusters(), federated.setup.task.space.select("body")
    for rounds, ends in product(range(1, 7), [((1, 4), (2, 5))]):
        done = run(federated, data, WORK, SOME[:rounds])
        theta = global_model(federated, done.servers[-1], done.clients)[0]
        for group, turns in ((body, ends[0]), (~body, ends[1])):
            since = max((0, *(end for end in turns if end <= rounds)))
            trained = sorted({c for cohort in SOME[since:rounds] for c in cohort})
            shares = torch.tensor([float(data.size(c)) for c in trained], dtype=torch.float64)
            mean = (shares / shares.sum()) @ models(done)[trained] if trained else done.last
            assert gap(theta[group], mean[group]) < 1e-14


def test_rounds_before_the_first_turn_are_one_interval():
    """Who goes on has its own model, who is new the initial one; and a first turn in the first round is a round."""
    late = ran(algorithm(Period("*", 4, 3), name="late"), [(0, 1), (0, 2), (2, 3)], FullBatch(2), weighting="uniform")
    plain = ran(algorithm(name="fedavg"), [(0, 1)], FullBatch(2), weighting="uniform")
    assert torch.equal(late.servers[2].params, late.servers[0].params)
    assert torch.equal(models(late)[1], models(plain)[1])
    first = ran(algorithm(Period("*", 4, 1), name="first"), [(0, 1)], FullBatch(2), weighting="uniform")
    assert torch.equal(first.last, plain.last)


TURNS = algorithm(
    *PIECES, Period("0.weight", 3, 1), Period("0.bias", 3, 2), Period("2.bias", NEVER), Cohort("held"),
    Server(Nesterov(0.9, 0.7)), name="turns",
)  # fmt: skip


# sums catch a slot or a part that reads a period without its offset
@pytest.mark.slow
@pytest.mark.parametrize(
    "subject",
    [
        TURNS,
        TURNS + named.period("2.weight", 2, 1) + algorithm(InTurn("0.weight"), name="rests"),
        named.streaming_diloco(),
    ],
    ids=["turns", "one of them rests", "streaming"],
)
def test_the_contract_holds(subject):
    assert check(subject).vectorized < 1e-10


def test_a_lift_does_not_change_turns():
    one, two = (ran(TURNS, lift=lift) for lift in (Sequential(), Vectorized(2)))
    assert gap(one.last, two.last) < 1e-12 and gap(models(one), models(two)) < 1e-12


def test_an_offset_that_is_none_is_refused_and_zero_is_not_said():
    with pytest.raises(UserError, match="never synchronized has no offset"):
        Period("body", NEVER, 1)
    for every, offset in ((3, 4), (3, -1), (1, 2), (3, 0.5)):
        with pytest.raises(UserError, match="an offset of .* is none for a period of .*: give a whole number from 0"):
            Period("body", every, offset)
    assert repr(Period("body", 3)) == "Period(which='body', every=3)"
    assert repr(Period("body", 3, 2)) == "Period(which='body', every=3, offset=2)"
    assert "in_turn" not in repr(named.fedals(3)) and "InTurn(which='lora_A')" in repr(named.rolora())


# the orders catch a fragment that is counted from 0, or that lies outside the model
@pytest.mark.parametrize("order, layers", [("strided", ["0.*", "2.*"]), ("sequential", ["0.*", "2.*"])])
def test_fragments_divide_the_layers(order, layers):
    space = federate(named.fedavg(), mlp()).setup.task.space
    for b, pattern in enumerate(layers, start=1):
        assert torch.equal(space.select(f"{order} {b}/2"), space.select(pattern))
    for wrong in ("0/2", "3/2", "1/3"):
        with pytest.raises(UserError, match="is no fragment: the model has 2 groups of layers, 0, 2; give 1 to 2"):
            space.select(f"{order} {wrong}")
