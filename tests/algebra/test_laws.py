"""Laws of a run: 3 centralized descent, 4 fixed points, 5 periods, 7 conservation, 11 pieces that commute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import (
    KEEPS_ALL,
    FullBatch,
    Point,
    by_torch,
    clusters,
    federate,
    gap,
    mlp,
    models,
    quadratic,
    quadratics,
    run,
)
from support.laws import ALL, CLIENTS, SOME, STEP, STEPS, drifted, optimum, schedules

from apiece.algebra.composition import Period, algorithm
from apiece.algebra.optim import Sgd
from apiece.algebra.periods import NEVER
from apiece.algebra.server_optim import (
    Adagrad,
    Adam,
    AveragedMomentum,
    Descent,
    Momentum,
    Nesterov,
    NormalizedMomentum,
    Yogi,
)
from apiece.engine.work import Work
from apiece.language import algorithms as named
from apiece.lifts.lift import Sequential, Vectorized
from apiece.pieces.fedcm import FedCM
from apiece.pieces.feddyn import FedDyn
from apiece.pieces.fedexp import FedExP
from apiece.pieces.fednova import FedNova
from apiece.pieces.fedsam import FedSAM
from apiece.pieces.outer_step import OuterStep
from apiece.pieces.proximal import Proximal
from apiece.pieces.relaxed_init import RelaxedInit
from apiece.pieces.scaffold import Scaffold


# --- law 3: one local step on everything, everyone: centralized descent ---------------------------------------------
# subjects catch a term that is not zero where it should be, momenta a mean taken after the server has moved
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("subject", [named.fedavg(), named.fedprox(0.5), named.fedals(1)], ids=lambda a: a.name)
def test_one_full_step_of_everyone_is_centralized_descent(subject, momentum):
    """Weights by samples make the clients' mean gradient the pooled one; FedAvgM is then heavy ball on the pool."""
    data, net = clusters(), mlp()
    ours = run(federate(subject, net, server=Momentum(momentum)), data, FullBatch(1), ALL * 8, 0.3)
    pooled, optimizer = net.double(), torch.optim.SGD(net.parameters(), lr=0.3, momentum=momentum)
    for t in range(8):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(pooled(data.pool[0]), data.pool[1]).backward()
        optimizer.step()
        assert (
            gap(ours.servers[t + 1].params, torch.nn.utils.parameters_to_vector(pooled.parameters()).detach()) < 1e-12
        )


def test_scaffold_with_one_full_step_is_descent_on_the_mean_of_the_clients():
    """sum_i (c - c_i) = 0, so its corrections cancel in the mean over everyone, whatever the round."""
    data = clusters()
    one, two = (
        run(federate(a, mlp(), weighting="uniform"), data, FullBatch(1), ALL * 6)
        for a in (named.scaffold(), named.fedavg())
    )
    assert gap(one.last, two.last) < 1e-13


# --- law 4: fixed points on quadratics ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_fedavg_rests_off_the_optimum_where_theory_says(weighting):
    q = quadratics()
    weights = np.array(q.counts) / sum(q.counts) if weighting == "samples" else np.full(CLIENTS, 1 / CLIENTS)
    ran = run(
        federate(named.fedavg(), Point(4), loss=quadratic, weighting=weighting),
        q.federation,
        FullBatch(STEPS),
        ALL * 90,
        STEP,
    )
    assert gap(ran.last, drifted(q, weights)) < 1e-10
    assert np.abs(drifted(q, weights) - optimum(q, weights)).max() > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("client", [Sgd(), Sgd(0.9)], ids=repr)
def test_scaffold_reaches_the_optimum(client):
    """Also under momentum, where option II's difference would not be the mean gradient."""
    q, everyone = quadratics(), np.full(CLIENTS, 1 / CLIENTS)
    subject = federate(named.scaffold(), Point(4), loss=quadratic, weighting="uniform", client=client)
    ran = run(subject, q.federation, FullBatch(STEPS), ALL * 180, 0.05 if client.momentum else STEP)
    assert gap(ran.last, optimum(q, everyone)) < 1e-10
    control = np.einsum(
        "ijk,ik->ij", q.a, optimum(q, everyone) - q.b
    )  # at rest c_i is the client's gradient there, c is zero
    assert gap(torch.stack([ran.clients.row(c)[0]["memory.Scaffold.variate"] for c in range(CLIENTS)]), control) < 1e-9
    plain = federate(named.fedavg(), Point(4), loss=quadratic, weighting="uniform", client=client)
    missed = run(plain, q.federation, FullBatch(STEPS), ALL * 180, 0.05 if client.momentum else STEP)
    assert gap(missed.last, optimum(q, everyone)) > 0.02


@pytest.mark.slow
def test_scaffold_reaches_the_optimum_with_some_of_the_clients():
    """Of the plain mean of the clients, whatever their models weigh: c is that mean, and at rest it is zero."""
    q = quadratics()
    cohorts = [np.random.Generator(np.random.Philox(t)).choice(CLIENTS, 3, replace=False) for t in range(500)]
    ran = run(
        federate(named.scaffold(), Point(4), loss=quadratic, weighting="samples"),
        q.federation,
        FullBatch(3),
        cohorts,
        STEP,
    )
    assert gap(ran.last, optimum(q, np.full(CLIENTS, 1 / CLIENTS))) < 1e-9


# --- law 5: periods -------------------------------------------------------------------------------------------------


PIECES = {"fedavg": [], "scaffold": [Scaffold()], "fedprox": [Proximal(0.3)], "relaxed": [RelaxedInit(0.2)],
          "delta": [RelaxedInit(0.2, "delta")], "all": [Scaffold(), RelaxedInit(0.2), Proximal(0.3)]}  # fmt: skip
SERVERS = (Descent(), Descent(0.7), Momentum(), Adam(), Yogi())
CLIENT_OPTIMIZERS = ((Sgd(), "fresh"), (Sgd(0.9, 0.01), "kept"))
MORE = {"feddyn": [FedDyn(0.3)], "feddyn + relaxed": [FedDyn(0.3), RelaxedInit(0.2)], "fedcm": [FedCM(0.3)],
        "fedcm + delta": [FedCM(0.3), RelaxedInit(0.2, "delta")], "fedsam": [FedSAM(0.3)], "fedexp": [FedExP()],
        "fednova": [FedNova()]}  # fmt: skip
OTHERS = [AveragedMomentum(), NormalizedMomentum(), Nesterov(), Adagrad()]
PAIRS = [(i, j, name, server) for i, name in enumerate(PIECES) for j, server in enumerate(SERVERS)]
PAIRS += [(i, i // 2, name, Descent()) for i, name in enumerate(MORE)]
PAIRS += [(i, i // 2, "feddyn" if i == 1 else "fedavg", server) for i, server in enumerate(OTHERS)]
# Any two meet. Pieces catch what is remembered or told too often, servers an optimizer that moves between
# synchronizations, periods an interval that is counted one off, clients' optimizers a state that is lost within it.
PAIRWISE = [
    pytest.param(name, server, 2 + (i + j) % 2, *CLIENT_OPTIMIZERS[(i + j // 2) % 2], id=f"{name}-{server!r}")
    for i, j, name, server in PAIRS
]


@pytest.mark.parametrize("name, server, p, client, state", PAIRWISE)
def test_a_period_is_a_longer_round(name, server, p, client, state):
    """Period p with K steps is period 1 with p K steps, and between two synchronizations the server rests."""
    (short, long), parts = schedules(p, 3), (PIECES | MORE)[name]
    client = Sgd(weight_decay=0.01) if name == "fednova" else client  # which asks for a fresh momentum
    settings: dict[str, Any] = {"server": server, "client": client, "optimizer_state": state, "clip": 1.0}
    settings |= {"watch": KEEPS_ALL}
    subject = algorithm(*parts, Period("*", p), name="slow")
    slow = run(federate(subject, mlp(), **settings), clusters(), short, ALL * (3 * p))
    quick = run(federate(algorithm(*parts, name="quick"), mlp(), **settings), clusters(), long, ALL * 3)
    one, two = (torch.stack([s.params for s in servers]) for servers in (slow.servers[::p], quick.servers))
    assert gap(one, two) < 1e-12 and gap(models(slow), models(quick)) < 1e-12
    for t in range(3 * p):  # memory and optimizer included
        if (t + 1) % p:
            before, after = slow.servers[t], slow.servers[t + 1]
            assert all(torch.equal(a, b) for a, b in zip(leaves(before), leaves(after), strict=True))


def leaves(server: Any) -> list[torch.Tensor]:
    return torch.utils._pytree.tree_leaves(server[1:])


def test_never_is_a_personal_parameter_written_by_hand():
    """A dictionary of heads, one a client; the body averaged."""
    data, cohorts, work = clusters(), SOME, Work(3, None, 4)
    subject = algorithm(Period("head", NEVER), name="never")
    ran = run(federate(subject, mlp(), watch=KEEPS_ALL), data, work, cohorts)
    net = mlp().double()
    body, heads = {k: v.detach().clone() for k, v in net[0].state_dict().items()}, {}
    first = {k: v.detach().clone() for k, v in net[2].state_dict().items()}
    for t, cohort in enumerate(cohorts):
        total, mean = 0, {k: torch.zeros_like(v) for k, v in body.items()}
        for c in cohort:
            net[0].load_state_dict(body)
            net[2].load_state_dict(heads.get(c, first))
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            by_torch(net, optimizer, map(data.samples(c).batch, work.batches(0, t, data.names[c], data.size(c), 3)))
            heads[c] = {k: v.detach().clone() for k, v in net[2].state_dict().items()}
            total += data.size(c)
            for k, v in net[0].state_dict().items():
                mean[k] += data.size(c) * v
        body = {k: v / total for k, v in mean.items()}
    space = ran.clients.federated.setup.task.space
    ours = space.unravel(ran.last)
    assert max(gap(ours[f"0.{k}"], v) for k, v in body.items()) < 1e-12
    assert all(torch.equal(ours[f"2.{k}"], v) for k, v in first.items())  # the server's copy never moves
    for c, head in heads.items():
        kept = space.unravel(models(ran)[c])
        assert max(gap(kept[f"2.{k}"], v) for k, v in head.items()) < 1e-12


def test_outer_step_of_one_is_none_and_of_zero_leaves_the_personal_part():
    subjects = [algorithm(*p, Period("head", NEVER), name="it") for p in ((OuterStep(1.0),), (OuterStep(0.0),), ())]
    federated = [federate(subject, mlp(), watch=KEEPS_ALL) for subject in subjects]
    whole, none, without = (run(each, clusters(), Work(3, None, 4), SOME) for each in federated)
    assert torch.equal(whole.last, without.last) and torch.equal(models(whole), models(without))
    head, initial = federated[0].setup.periods.never, federated[0].setup.initial
    assert torch.equal(models(none)[:, head], initial[head].expand(CLIENTS, -1))
    assert gap(models(none)[:, ~head], initial[~head]) > 0.01


# --- law 7: conservation --------------------------------------------------------------------------------------------
FEDDYN, VARIATE = named.feddyn(), named.scaffold()
RELAXED, PERSONAL = (named.relaxed_init(), named.relaxed_init(aggregate="delta")), named.fedavg_p(outer_personal=0.5)
CONSERVED = [VARIATE, named.scaffold_p(), VARIATE + named.fedals(2), VARIATE + RELAXED[0], FEDDYN]
CONSERVED += [FEDDYN + other for other in (*RELAXED, named.fedals(2), PERSONAL)]


# subjects catch a term that another start or group changes, weightings a mean with the models' weights, lifts a row
# that is lost in a stack
@pytest.mark.parametrize("weighting, lift", [("uniform", Sequential()), ("samples", Vectorized(2))], ids=repr)
@pytest.mark.parametrize("subject", CONSERVED, ids=lambda a: a.name)
def test_the_servers_memory_is_the_mean_of_the_clients(subject, weighting, lift):
    """c of SCAFFOLD, h of FedDyn: with absentees, unequal samples and a client whose training is not finite."""
    data, means = clusters(), list[torch.Tensor]()
    data.pool[0][data.train[4]] *= float("inf")
    piece, leaf = ("FedDyn", "term") if "feddyn" in subject.name else ("Scaffold", "variate")

    def mean(t: int, clients: Any) -> None:
        means.append(torch.stack([clients.row(c)[0][f"memory.{piece}.{leaf}"] for c in range(CLIENTS)]).mean(0))

    absent, federated = {1: {3}, 3: {0}, 4: {1, 2}}, federate(subject, mlp(), weighting=weighting)
    ran = run(federated, data, Work(2, None, 4), SOME, 0.1, lift, absent, mean, "skip")
    assert [a.skipped for a in ran.answers] == [[], [], [4], [4], [], [4]] and ran.answers[4].answered == []
    found = [getattr(server.memory[piece], leaf) for server in ran.servers[1:]]
    assert all(gap(one, expected) < 1e-14 for one, expected in zip(found, means, strict=True))
    assert found[-1].abs().max() > 1e-3 and (found[-1][federated.setup.periods.never] == 0).all()


# --- law 11: pieces on disjoint slots commute -----------------------------------------------------------------------
@pytest.mark.parametrize(
    "one, two",
    [
        (Proximal(0.3), RelaxedInit(0.2)),
        (Scaffold(), RelaxedInit(0.2, "delta")),
        (OuterStep(0.5), Scaffold()),
        (OuterStep(0.5), RelaxedInit(0.2)),
    ],
    ids=repr,
)
def test_pieces_on_disjoint_slots_commute(one, two):
    orders = [algorithm(*parts, Period("head", NEVER), name="both") for parts in ((one, two), (two, one))]
    left, right = (run(federate(a, mlp(), watch=KEEPS_ALL), clusters(), Work(3, None, 4), SOME) for a in orders)
    assert torch.equal(left.last, right.last) and torch.equal(models(left), models(right))
