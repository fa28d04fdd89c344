"""The oracles themselves: gradients by differences, limits where two algorithms meet, conservation, wrong readings."""

from __future__ import annotations

import ast
import re
from itertools import pairwise, product

import numpy as np
import pytest
from oracles import (
    ORACLES,
    fedals,
    fedals_fedinit,
    fedals_first_step,
    fedals_scaffold,
    fedavg,
    fedavg_p,
    fedinit,
    fedprox,
    fedprox_fedinit,
    problem,
    scaffold,
    scaffold_fedinit,
    scaffold_p,
    scaffold_p_fedinit,
)
from oracles.loop import Variates, loop, relaxed
from oracles.problem import BODY, HEAD, SIZE, Fixture, Round, constant, everyone, fixture, servers, visible
from support import TESTS
from support.readings import FIXTURES, reading

NOTHING, EVERYTHING = np.zeros(SIZE, dtype=bool), np.ones(SIZE, dtype=bool)
STANDARD = ("__future__", "collections.abc", "dataclasses", "importlib", "typing")
WITH_CONTROL = [n for n in ORACLES if "scaffold" in n]
both = pytest.mark.parametrize("f", FIXTURES.values(), ids=FIXTURES)


def same(one: list[Round], two: list[Round]) -> bool:
    """Equal servers and equal client models, to a few roundings."""
    return all(
        np.allclose(a, b, rtol=0, atol=1e-12)
        for r, s in zip(one, two, strict=True)
        for a, b in zip(r[:2], s[:2], strict=True)
    )


def merged(f: Fixture, p: int) -> Fixture:
    """p rounds with one cohort and one step size as one round of as many more local steps."""
    rounds = range(0, f.rounds, p)
    batches = {
        (t // p, i): np.concatenate([f.batches[t + j, i] for j in range(p)]) for t in rounds for i in range(f.clients)
    }
    return f._replace(cohorts=f.cohorts[::p], batches=batches, lr=f.lr[::p])


# --- the problem ----------------------------------------------------------------------------------------------------
def test_gradient_is_the_derivative_of_the_loss():
    f, h = fixture(3), 1e-6
    for i in range(f.clients):
        index = f.batches[0, i][0]
        x, y = f.x[i][index], f.y[i][index]
        numeric = [
            (problem.loss(f.initial + e, x, y) - problem.loss(f.initial - e, x, y)) / (2 * h) for e in h * np.eye(SIZE)
        ]
        assert np.allclose(f.gradient(f.initial, 0, i, 0), numeric, rtol=0, atol=1e-8)


def test_layout_is_torchs():
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).double()
    f = fixture(0)
    torch.nn.utils.vector_to_parameters(torch.from_numpy(f.initial), net.parameters())
    assert {n: tuple(p.shape) for n, p in net.named_parameters()} == problem.SHAPES
    assert [BODY.sum(), HEAD.sum()] == [sum(p.numel() for p in net[k].parameters()) for k in (0, 2)]
    assert BODY[:35].all() and HEAD[35:].all()
    x, y = f.x[2], f.y[2]
    value = torch.nn.functional.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y))
    value.backward()
    gradient = torch.cat([p.grad.reshape(-1) for p in net.parameters()]).numpy()
    assert abs(value.item() - problem.loss(f.initial, x, y)) < 1e-14
    assert np.allclose(gradient, problem.gradient(f.initial, x, y), rtol=0, atol=1e-14)


def test_schedule_has_every_case_that_matters():
    f = fixture(0)
    seen = [set(c.tolist()) for c in f.cohorts]
    assert 5 not in seen[0] | seen[1] and 5 in seen[2]  # first appears in round 2
    assert 1 in seen[0] and 1 not in seen[1] and 1 in seen[2]  # skips a round
    assert set.union(*seen) == set(range(f.clients)) and max(map(len, seen)) < f.clients
    assert (np.diff(f.lr) < 0).all()
    assert len(set(f.samples)) == f.clients and (f.samples.min(), f.samples.max()) == (5, 40)
    assert all(b.shape == (3, 4) and b.max() < len(f.y[i]) for (_, i), b in f.batches.items())
    assert {len(b) for b in fixture(0, ragged=True).batches.values()} == {3, 4, 5}
    # Three rounds an interval: one that pauses and goes on, one that goes on, one whose work is lost.
    assert 1 in seen[0] & seen[2] - seen[1] and 0 in seen[0] & seen[1] - seen[2] and 3 in seen[3] & seen[4] & seen[5]
    assert all(len(np.unique(y)) > 1 for y in f.y)


def test_oracles_import_only_numpy_and_each_other():
    for path in (TESTS / "oracles").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert {a.name for a in node.names} <= {"numpy"}, path
            if isinstance(node, ast.ImportFrom):
                assert node.level == 1 or node.module in STANDARD, path


# --- every oracle ---------------------------------------------------------------------------------------------------
def test_a_wrong_reading_is_named_by_its_equation():
    """Not by whose code has it."""
    for wrong in [said for oracle in ORACLES.values() for said in oracle.MUTATIONS.values()]:
        assert not re.search(r"\b(codes?|port|bench|official|repository|FL)\b|\.py\b", wrong, re.I), wrong


# an oracle catches an example at which one of its wrong readings is right
@pytest.mark.slow
@pytest.mark.parametrize("oracle", ORACLES)
def test_wrong_readings_show(oracle):
    """Every one, on either problem."""
    for on, mutation in product(FIXTURES, ORACLES[oracle].MUTATIONS):
        right, wrong = visible(reading(oracle, on)), visible(reading(oracle, on, mutation))
        assert np.isfinite(wrong).all(), (on, mutation)
        assert np.abs(right - wrong).max() > 1e-3, (on, mutation)  # asked for: 1e-4


# an oracle catches a model that moves in one who is absent, or that is overwritten
@pytest.mark.parametrize("oracle", ORACLES)
def test_contract(oracle):
    module, f = ORACLES[oracle], fixture(0)
    assert len(module.MUTATIONS) >= 2
    before = fixture(0)
    once, twice = module.run(f, **module.EXAMPLE), module.run(f, **module.EXAMPLE)
    assert all(
        np.array_equal(a, b) for r, s in zip(once, twice, strict=True) for a, b in zip(r[:2], s[:2], strict=True)
    )
    assert np.array_equal(f.initial, before.initial)
    initial = module.widened(f.initial) if hasattr(module, "widened") else f.initial
    parameters = getattr(module, "PARAMETERS", initial)  # of the server: a model, unless it writes models
    assert len(once) == f.rounds
    assert all(r.server.shape == parameters.shape and r.models.shape == (6, len(initial)) for r in once)
    for t in range(f.rounds):  # who does not take part keeps what it has
        absent = np.setdiff1d(np.arange(f.clients), f.cohorts[t])
        previous = once[t - 1].models if t else np.tile(initial, (f.clients, 1))
        assert np.array_equal(once[t].models[absent], previous[absent])
        stays = (once[t].models[f.cohorts[t]] == previous[f.cohorts[t]]).all(axis=1)
        assert stays.all() if t < getattr(module, "STILL", 0) else not stays.any()
    if oracle != "fedavg" and len(parameters) == SIZE:
        assert np.abs(visible(once) - visible(fedavg.run(f))).max() > 1e-2  # the example is not FedAvg in disguise
    with pytest.raises(AssertionError):
        module.run(f, mutation="misspelt")


# weights catch a mean with those of the models, problems one with the clients' steps
@pytest.mark.parametrize("problem, weights", [("even", "samples"), ("ragged", "uniform")])
@pytest.mark.parametrize("oracle", WITH_CONTROL)
def test_servers_variate_is_the_mean_of_the_clients(oracle, problem, weights):
    rounds = ORACLES[oracle].run(FIXTURES[problem], **ORACLES[oracle].EXAMPLE, weights=weights)
    for r in rounds:
        assert np.allclose(r.control, r.controls.mean(axis=0), rtol=0, atol=1e-12)
    assert np.abs(rounds[-1].control).max() > 1e-2


@both
def test_the_loop_of_compositions_is_those_written_by_hand(f):
    """With nothing in it FedAvg's, with a period FedALS's, from relaxed starts FedInit's, with variates SCAFFOLD's."""
    assert same(loop(f, weights="samples"), fedavg.run(f, weights="samples"))
    for cohort in ("redrawn", "held"):
        assert same(loop(f, alpha=3, cohort=cohort), fedals.run(f, alpha=3, cohort=cohort))
    for aggregate in ("paper", "delta"):
        assert same(loop(f, relaxed(0.2), aggregate=aggregate), fedinit.run(f, beta=0.2, aggregate=aggregate))
    c = Variates(f)
    option_2 = lambda turn: c.clients[turn.i] - c.server + (turn.sent - turn.end) / (turn.steps * turn.lr)
    one, two = loop(f, along=c.corrected, server=c.moving(option_2), variates=c), scaffold.run(f)
    assert same(one, two)
    for r, s in zip(one, two, strict=True):
        assert np.allclose(r.control, s.control, rtol=0, atol=1e-12)
        assert np.allclose(r.controls, s.controls, rtol=0, atol=1e-12)


# --- limits in which two algorithms meet ----------------------------------------------------------------------------
# weights catch a limit that holds for equal clients alone, problems one for equal steps
@both
@pytest.mark.parametrize("weights", ["uniform", "samples"])
def test_neutral_parameters(f, weights):
    plain, control = fedavg.run(f, weights=weights), scaffold.run(f, weights=weights)
    w = {"weights": weights}
    assert same(fedinit.run(f, beta=0, **w), plain) and same(fedinit.run(f, beta=0, aggregate="delta", **w), plain)
    assert same(fedprox.run(f, mu=0, **w), plain)
    assert same(fedals.run(f, alpha=1, **w), plain) and same(fedals.run(f, alpha=1, cohort="held", **w), plain)
    assert same(fedals.run(f, alpha=3, body=NOTHING, **w), plain)
    assert same(fedals_scaffold.run(f, alpha=1, **w), control)  # also: accumulated gradients are option II
    assert same(fedals_fedinit.run(f, alpha=1, beta=0.2, **w), fedinit.run(f, beta=0.2, **w))
    assert same(fedals_fedinit.run(f, alpha=3, beta=0, **w), fedals.run(f, alpha=3, **w))
    assert same(fedprox_fedinit.run(f, mu=0.3, beta=0, **w), fedprox.run(f, mu=0.3, **w))
    assert same(fedprox_fedinit.run(f, mu=0, beta=0.2, **w), fedinit.run(f, beta=0.2, **w))
    for aggregate in ("paper", "delta"):
        how = {"aggregate": aggregate, **w}
        assert same(scaffold_fedinit.run(f, beta=0, **how), control)
        alone = scaffold_fedinit.run(f, beta=0.2, **how)
        assert same(scaffold_p_fedinit.run(f, beta=0.2, personal=NOTHING, **how), alone)
        assert same(
            scaffold_p_fedinit.run(f, beta=0, outer_shared=0.7, **how), scaffold_p.run(f, outer_shared=0.7, **w)
        )
    assert same(scaffold.run(f, **w)[:1], plain[:1])  # all variates are zero in round 0


@both
def test_nothing_personal_is_fedavg_and_scaffold_with_a_server_step(f):
    assert same(fedavg_p.run(f, personal=NOTHING), fedavg.run(f))
    assert same(fedavg_p.run(f, personal=NOTHING, outer_shared=0.7), fedavg.run(f, server_lr=0.7))
    assert same(scaffold_p.run(f, personal=NOTHING, outer_shared=0.7), scaffold.run(f, server_lr=0.7))


@both
def test_everything_personal_is_parallel_sgd(f):
    alone = np.tile(f.initial, (f.clients, 1))
    for t, cohort in enumerate(f.cohorts):
        for i in cohort:
            for k in range(f.steps(t, i)):
                alone[i] = alone[i] - f.lr[t] * f.gradient(alone[i], t, i, k)
    for oracle in (fedavg_p, scaffold_p):
        last = oracle.run(f, personal=EVERYTHING)[-1]
        assert np.allclose(last.models, alone, rtol=0, atol=1e-13) and np.array_equal(last.server, f.initial)


def test_outer_step_moves_part_of_the_way():
    f = fixture(0)
    whole, part, none = (fedavg_p.run(f, outer_personal=e)[0].models[:, HEAD] for e in (1.0, 0.25, 0.0))
    start = f.initial[HEAD]
    assert np.allclose(part - start, 0.25 * (whole - start), rtol=0, atol=1e-14) and (none == start).all()


def test_one_full_batch_step_of_everyone_is_centralized_descent():
    f = everyone(fixture(0))
    f = f._replace(batches={(t, i): np.arange(len(f.y[i]))[None] for t, i in f.batches})
    x, xs, ys = f.initial, np.concatenate(f.x), np.concatenate(f.y)
    for t, r in enumerate(fedavg.run(f, weights="samples")):
        x = x - f.lr[t] * problem.gradient(x, xs, ys)
        assert np.allclose(r.server, x, rtol=0, atol=1e-14)


def test_paper_and_delta_aggregation_agree_under_full_participation_only():
    f = everyone(fixture(0))
    for oracle in (fedinit, fedprox_fedinit, scaffold_fedinit, scaffold_p_fedinit):
        # mean_i (w - last_i) = 0: w is the mean of what the clients ended with, in round 0 of the initial vector
        assert same(oracle.run(f, beta=0.2), oracle.run(f, beta=0.2, aggregate="delta"))
        paper, delta = (servers(oracle.run(fixture(0), beta=0.2, aggregate=a)) for a in ("paper", "delta"))
        assert np.abs(paper - delta).max() > 1e-2


# --- FedALS ---------------------------------------------------------------------------------------------------------
# periods catch an interval counted one off, problems a count of steps
@pytest.mark.parametrize("alpha", [1, 2, 3])
@both
def test_fedals_is_algorithm_1_under_full_participation(f, alpha):
    f = everyone(f)
    for t, (r, locals_) in enumerate(zip(fedals.run(f, alpha=alpha), fedals.algorithm_1(f, alpha), strict=True)):
        assert np.allclose(r.server[HEAD], locals_[:, HEAD], rtol=0, atol=1e-13)
        assert np.allclose(r.models.mean(axis=0), locals_.mean(axis=0), rtol=0, atol=1e-13)  # the virtual average
        if (t + 1) % alpha == 0:
            assert np.allclose(r.server[BODY], locals_[:, BODY], rtol=0, atol=1e-13)
        else:
            assert np.abs(locals_[:, BODY] - locals_[0, BODY]).max() > 1e-3


@pytest.mark.parametrize("alpha", [1, 2, 3])
def test_fedals_from_the_first_step_is_its_iterations_under_full_participation(alpha):
    f = everyone(fixture(0))  # every client has as many steps
    theirs = fedals_first_step.by_iterations(f, f.steps(0, 0), alpha)
    for r, locals_ in zip(fedals_first_step.run(f, alpha=alpha), theirs, strict=True):
        assert np.allclose(r.server[HEAD], locals_[:, HEAD], rtol=0, atol=1e-13)
        assert np.allclose(r.models.mean(axis=0), locals_.mean(axis=0), rtol=0, atol=1e-13)


def test_body_stays_on_the_server_between_synchronizations():
    rounds = fedals.run(fixture(0), alpha=3)
    bodies = np.stack([fixture(0).initial, *servers(rounds)])[:, BODY]
    moved = [not np.array_equal(a, b) for a, b in pairwise(bodies)]
    assert moved == [False, False, True, False, False, True]
    assert not np.array_equal(rounds[0].server[HEAD], rounds[1].server[HEAD])


# periods catch an interval counted one off, problems a count of steps
@both
@pytest.mark.parametrize("p", [2, 3])
def test_a_period_is_a_longer_round(f, p):
    """Everything averaged every p rounds by one held cohort, step size constant: p times the local steps a round."""
    f = constant(f)
    long = merged(f, p)
    how = {"alpha": p, "cohort": "held", "body": EVERYTHING}
    for slow, quick in (
        (fedals.run(f, **how), fedavg.run(long)),
        (fedals_scaffold.run(f, **how), scaffold.run(long)),
        (fedals_fedinit.run(f, beta=0.2, **how), fedinit.run(long, beta=0.2)),
    ):
        assert same(slow[p - 1 :: p], quick)


@both
def test_accumulated_gradients_are_the_difference_where_the_step_size_is_constant(f):
    for g, equal in ((constant(f), True), (f, False)):
        one, two = fedals_scaffold.run(g, alpha=3), fedals_scaffold.run(g, alpha=3, mutation="option_2")
        assert np.allclose(servers(one), servers(two), rtol=0, atol=1e-12) == equal


# --- SCAFFOLD -------------------------------------------------------------------------------------------------------
@both
def test_variates_are_mean_gradients(f):
    """Option II from the start of training is (1/K) sum_k g(y_k), relaxed or not, at the points really visited."""
    for beta, rounds in ((0.0, scaffold.run(f)), (0.2, scaffold_fedinit.run(f, beta=0.2))):
        before = Round(f.initial, np.tile(f.initial, (6, 1)), np.zeros(SIZE), np.zeros((6, SIZE)))
        for t, after in enumerate(rounds):
            for i in f.cohorts[t]:
                y, gradients = before.server + beta * (before.server - before.models[i]), []
                for k in range(f.steps(t, i)):
                    gradients.append(f.gradient(y, t, i, k))
                    y = y - f.lr[t] * (gradients[-1] - before.controls[i] + before.control)
                assert np.allclose(after.controls[i], np.mean(gradients, axis=0), rtol=0, atol=1e-12)
            before = after


def test_scaffold_follows_centralized_descent_to_second_order():
    """Full batches, everyone, lr -> lr/2 with twice the rounds: FedAvg's gap to the center halves, SCAFFOLD's quarters.

    A client of FedAvg is k lr (grad f_i - grad f) off the central path, so the mean of the gradients is off to first
    order in lr. SCAFFOLD takes grad f_i - grad f away, but for its change over one round, itself of first order in lr.
    """
    gap = {}
    for lr in (0.04, 0.02):
        rounds, f = round(2 / lr), fixture(0)
        batches = {(t, i): np.tile(np.arange(len(f.y[i])), (5, 1)) for t in range(rounds) for i in range(f.clients)}
        f = f._replace(cohorts=(np.arange(6),) * rounds, batches=batches, lr=np.full(rounds, lr))
        x = f.initial
        for _ in range(5 * rounds):
            x = x - lr * np.mean([problem.gradient(x, f.x[i], f.y[i]) for i in range(6)], axis=0)
        for oracle in (fedavg, scaffold):
            gap[oracle, lr] = np.linalg.norm(oracle.run(f)[-1].server - x)
    assert 1.7 < gap[fedavg, 0.04] / gap[fedavg, 0.02] < 2.3
    assert 3.4 < gap[scaffold, 0.04] / gap[scaffold, 0.02] < 4.6
    assert gap[scaffold, 0.02] < gap[fedavg, 0.02] / 10
