"""FedDyn, FedCM, FedSAM, FedNova, FedExP and the server's optimizers: fixed points, limits, cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import (
    KEEPS_ALL,
    FullBatch,
    Given,
    Point,
    clusters,
    federate,
    gap,
    mlp,
    models,
    quadratic,
    quadratics,
    run,
)
from support.laws import ALL, CLIENTS, SOME, STEP, STEPS, drifted, optimum
from torch import nn

from apiece.algebra.composition import Client, algorithm
from apiece.algebra.optim import AdamW, Sgd
from apiece.algebra.server_optim import Momentum
from apiece.engine.work import Work
from apiece.errors import UserError
from apiece.language import algorithms as named
from apiece.lifts.lift import Sequential, Vectorized
from apiece.pieces.fedcm import FedCM
from apiece.pieces.fedexp import FedExP
from apiece.pieces.fedsam import FedSAM

EVEN = np.full(CLIENTS, 1 / CLIENTS)


# --- fixed points on quadratics -------------------------------------------------------------------------------------
# weightings catch h taken with the models' weights, the relaxed start a term from what was sent
@pytest.mark.slow
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize(
    "subject", [named.feddyn(0.5), named.feddyn(0.5) + named.relaxed_init(0.1)], ids=lambda a: a.name
)
def test_feddyn_reaches_the_pooled_optimum(subject, weighting):
    """At rest clients end where they began, so h_i is a client's gradient there and h, their mean, zero."""
    q = quadratics()
    settings: dict[str, Any] = {"loss": quadratic, "weighting": weighting}
    ran = run(federate(subject, Point(4), **settings), q.federation, FullBatch(STEPS), ALL * 250, STEP)
    assert gap(ran.last, optimum(q, EVEN)) < 1e-10
    gradients = np.einsum("ijk,ik->ij", q.a, optimum(q, EVEN) - q.b)
    assert gap(torch.stack([ran.clients.row(c)[0]["memory.FedDyn.term"] for c in range(CLIENTS)]), gradients) < 1e-8
    plain = run(federate(named.fedavg(), Point(4), **settings), q.federation, FullBatch(STEPS), ALL * 60, STEP)
    assert gap(plain.last, optimum(q, EVEN)) > 0.05


@pytest.mark.slow
def test_feddyn_reaches_the_optimum_with_some_of_the_clients():
    q = quadratics()
    cohorts = [np.random.Generator(np.random.Philox(t)).choice(CLIENTS, 3, replace=False) for t in range(500)]
    subject = federate(named.feddyn(0.5), Point(4), loss=quadratic, weighting="uniform")
    ran = run(subject, q.federation, FullBatch(STEPS), cohorts, STEP)
    assert gap(ran.last, optimum(q, EVEN)) < 1e-8


@pytest.mark.slow
def test_fednova_rests_at_the_optimum_that_unequal_work_moves_fedavg_from():
    """As the step size falls FedAvg rests where clients count by their steps, sum_i K_i A_i (w - b_i) = 0."""
    q, lr, steps, rounds = quadratics(), 0.01, (1, 2, 3, 5, 1), 300
    names = q.federation.names
    table = {
        (t, n): torch.zeros(k, 1, dtype=torch.int64) for t in range(rounds) for n, k in zip(names, steps, strict=True)
    }
    counted = np.array(steps) / sum(steps)
    assert np.abs(optimum(q, EVEN) - optimum(q, counted)).max() > 0.2
    for subject, weights in ((named.fednova(), EVEN), (named.fedavg(), counted)):
        federated = federate(subject, Point(4), loss=quadratic, weighting="uniform")
        ran = run(federated, q.federation, Given(table), ALL * rounds, lr)
        assert gap(ran.last, optimum(q, weights)) < 0.02


# a server catches a step that is not zero where the mean is
@pytest.mark.slow
@pytest.mark.parametrize("server", ["fedavgm", "fedadam", "fedyogi"])
def test_a_servers_step_leaves_fedavgs_fixed_point(server):
    """The pseudo-gradient is zero where FedAvg rests, whatever is made of it."""
    q = quadratics()
    subject = getattr(named, server)(**({} if server == "fedavgm" else {"lr": 0.1, "tau": 0.1}))
    ran = run(
        federate(subject, Point(4), loss=quadratic, weighting="uniform"),
        q.federation,
        FullBatch(STEPS),
        ALL * 300,
        STEP,
    )
    assert gap(ran.last, drifted(q, EVEN)) < 1e-6


# --- limits ---------------------------------------------------------------------------------------------------------
# pieces catch a pass that moves statistics, policies where these are kept
@pytest.mark.parametrize("piece", [FedCM(1.0), FedSAM(0.0), FedExP(float("inf"))], ids=repr)
@pytest.mark.parametrize("buffers", ["average", "local", "drop"])
def test_neutral_values_are_fedavg_bitwise_with_batch_norm(piece, buffers):
    """Statistics too: FedSAM's first pass leaves them alone."""
    net = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))
    subjects, data = (algorithm(piece, name="neutral"), named.fedavg()), clusters(dtype=torch.float32)
    federated = [federate(a, net, torch.float32, buffers=buffers, clip=1.0) for a in subjects]
    one, two = (run(each, data, Work(3, None, 4), SOME) for each in federated)
    assert torch.equal(one.last, two.last) and torch.equal(one.servers[-1].buffers, two.servers[-1].buffers)


def test_fedsam_with_batch_norm_under_every_lift():
    net = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))
    one, two = (
        run(federate(named.fedsam(0.3), net), clusters(), Work(3, None, 4), SOME, lift=lift)
        for lift in (Sequential(), Vectorized(2))
    )
    assert gap(one.last, two.last) < 1e-12 and gap(one.servers[-1].buffers, two.servers[-1].buffers) < 1e-12


@pytest.mark.parametrize("client", [Sgd(), Sgd(0.9, 0.1)], ids=repr)
def test_fedsam_is_a_loop_of_torchs(client):
    """Ascend along the gradient as it is, clip the second one, step with momentum and decay from the first's point."""
    data, work, net, rho = clusters((20,)), Work(4, None, 5), mlp().double(), 0.3
    ran = run(federate(named.fedsam(rho), mlp(), client=client, clip=0.5), data, work, [[0]] * 3)
    parameters = list(net.parameters())

    def gradient(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return list(torch.autograd.grad(nn.functional.cross_entropy(net(x), y), parameters))

    for t in range(3):
        optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=client.momentum, weight_decay=client.weight_decay)
        for rows in work.batches(0, t, "c0", 20, 4):
            x, y = data.samples(0).batch(rows)
            here, g = [p.detach().clone() for p in parameters], gradient(x, y)
            norm = torch.cat([v.reshape(-1) for v in g]).norm()
            with torch.no_grad():
                for p, v in zip(parameters, g, strict=True):
                    p.add_(rho * v / (norm + 1e-7))
            for p, v in zip(parameters, gradient(x, y), strict=True):
                p.grad = v
            total = torch.cat([p.grad.reshape(-1) for p in parameters if p.grad is not None]).norm()
            with torch.no_grad():
                for p, v in zip(parameters, here, strict=True):
                    p.copy_(v)
                    assert p.grad is not None
                    p.grad.mul_(min(1.0, 0.5 / float(total)))
            optimizer.step()
    assert gap(ran.last, nn.utils.parameters_to_vector(net.parameters()).detach()) < 1e-12


def test_fedsam_leaves_corrections_alone():
    """A correction is added after the ascent, whatever the order; SCAFFOLD's variates are of ascended gradients."""
    for other in (named.fedprox(0.3), named.scaffold()):
        one, two = (
            run(federate(a, mlp(), watch=KEEPS_ALL), clusters(), Work(3, None, 4), SOME)
            for a in (other + named.fedsam(0.2), named.fedsam(0.2) + other)
        )
        assert torch.equal(one.last, two.last) and torch.equal(models(one), models(two))
    two = run(
        federate(named.scaffold() + named.fedsam(0.2), mlp(), weighting="uniform"), clusters(), FullBatch(1), ALL * 4
    )
    one = run(federate(named.fedsam(0.2), mlp(), weighting="uniform"), clusters(), FullBatch(1), ALL * 4)
    assert gap(one.last, two.last) < 1e-13  # sum_i (c - c_i) = 0


def test_fednova_of_equal_work_is_fedavg_but_for_rounding():
    for momentum in (0.0, 0.9):
        one, two = (
            run(federate(a, mlp(), client=Sgd(momentum)), clusters(), Work(3, None, 4), SOME)
            for a in (named.fednova(), named.fedavg())
        )
        assert gap(one.last, two.last) < 1e-14


def test_fednova_takes_its_momentum_from_the_clients_optimizer():
    """Twice the work counts for ||a||_1 of the run's own momentum, whoever names it; no other optimizer is counted."""
    table = Given({(0, f"c{i}"): torch.arange(4).repeat(k, 1) for i, k in enumerate((2, 4))})
    m = 0.8
    ones = [sum(m**j for k in range(steps) for j in range(steps - k)) for steps in (2, 4)]
    for subject, settings in (
        (named.fednova(), {"client": Sgd(m)}),
        (named.fednova() + algorithm(Client(Sgd(m)), name="momentum"), {"client": AdamW()}),
    ):
        alone, both = (
            [run(federate(a, mlp(), weighting="uniform", **settings), clusters(), table, [who]).last for who in whose]
            for a, whose in ((subject, ([0], [1])), (subject, ([0, 1],)))
        )
        start = federate(subject, mlp()).start().params
        moved = [(start - end) / a for end, a in zip(alone, ones, strict=True)]
        assert gap(start - both[0], sum(ones) / 2 * sum(moved) / 2) < 1e-14
    with pytest.raises(UserError, match=r"fednova.*sgd.*AdamW"):
        run(federate(named.fednova(), mlp(), client=AdamW()), clusters(), FullBatch(2), ALL)


def test_fedexp_is_fedavg_where_clients_agree():
    """Equal updates make the ratio a half."""
    one = clusters((8,))
    alike = replace(one, train=one.train * 4, test=one.test * 4, names=["a", "b", "c", "d"])
    fast, plain = (
        run(federate(a, mlp()), alike, FullBatch(3), [range(4)] * 4) for a in (named.fedexp(), named.fedavg())
    )
    assert torch.equal(fast.last, plain.last)
    fast, plain = (run(federate(a, mlp()), clusters(), FullBatch(3), ALL) for a in (named.fedexp(), named.fedavg()))
    ratio = (fast.last - fast.servers[0].params) / (plain.last - plain.servers[0].params)
    assert ratio.std() < 1e-6 and ratio.mean() > 1.01


def test_fedcm_follows_the_gradient_where_the_server_has_no_direction():
    """One step from one point: shared parameters make alpha of FedAvg's move, personal ones all of it."""
    subject = named.fedcm(0.2) + named.fedavg_p()
    ran = run(federate(subject, mlp(), watch=KEEPS_ALL), clusters(), FullBatch(1), [[0]])
    plain = run(federate(named.fedavg_p(), mlp(), watch=KEEPS_ALL), clusters(), FullBatch(1), [[0]])
    head = ran.clients.federated.setup.periods.never
    moved = [models(r)[0] - r.servers[0].params for r in (ran, plain)]
    assert torch.equal(moved[0][head], moved[1][head]) and gap(moved[0][~head], 0.2 * moved[1][~head]) < 1e-15


# --- cost: the papers' own numbers are in test_costs.py --------------------------------------------------------------
@pytest.mark.parametrize("subject", [named.fednova(), named.fedexp()], ids=lambda a: a.name)
def test_one_number_more(subject):
    ran = run(federate(subject, mlp()), clusters(), Work(2, None, 4), SOME)
    assert all(a.traffic.control_up == len(a.answered) and a.traffic.control_down == 0 for a in ran.answers)


def test_the_forms_of_fedavgm_are_other_values():
    forms = {form: named.fedavgm(form=form).server for form in ("hsu", "mean", "normalized", "nesterov", "exp")}
    assert forms["hsu"] == forms["exp"] == Momentum()  # FedExP's code writes Hsu's equation
    assert len({repr(server) for server in forms.values()}) == 4
