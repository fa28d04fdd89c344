"""Values by which an algorithm goes another way, beyond their oracles: what is the same, what is asked and sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from oracles import ORACLES
from support import tiers
from support.against import build, follow, furthest
from support.costs import HEAD, cost
from support.helpers import gap
from support.readings import FIXTURES, SHOWS, TIGHT
from support.wired import CONFIG, same, sequential

from apiece.algebra.broadcast import FederationFacts
from apiece.algebra.composition import Algorithm
from apiece.algebra.periods import NEVER, Schedule
from apiece.config.assemble import assemble, chosen_algorithm
from apiece.contract import check
from apiece.engine.clients import Clients
from apiece.engine.work import Work
from apiece.experiment.launch import run_config
from apiece.language import algorithms as named
from apiece.lifts.lift import Threaded, Vectorized
from apiece.pieces.scaffold import Scaffold
from apiece.vector.space import Space

VALUES = [
    "fedprox(mu=0.3, center=server) + relaxed_init(0.2)",
    "fedprox(mu=0.3, center=server) + fedals(2) + fedavg_p",
    "scaffold(control=difference)",
    "scaffold(control=difference) + fedals(2) + relaxed_init(0.2)",
    "scaffold(control=difference, init_control=grad)",
    "scaffold_p(init_control=grad, control=difference)",
    "scaffold_p(init_control=grad, outer_personal=0.5) + fedals(2) + feddyn + fedcm(0.5)",
    "fedals(2, phase=first_step)",
    "fedals(2, cohort=held, phase=first_step) + scaffold + relaxed_init(0.2)",
    "fedals(1, phase=first_step) + period(body, 2) + period('0.bias', 3) + period('2.bias', inf) + feddyn",
    "period('0.weight', 2) + period('0.bias', 3) + scaffold(init_control=grad)",
    "pefll(descriptor=all, embedding=linear)",
    "pefll(descriptor=first, embedding=linear, server=sgd, clip=none, lambda_h=0.1, lambda_v=0.2)",
    "fedcog(steps=2, samples=7, batch=3, temperature=2, shuffle=each_pass, kd_weight=1)",
    "fedcog(steps=2, samples=3, batch=3, temperature=0.5, shuffle=each_pass) + scaffold(init_control=grad)",
]


# a value catches a branch of its piece that the default does not take
@pytest.mark.parametrize("text", tiers.but(("fedals(2, phase=first_step)",), VALUES))
def test_the_contract_holds(text):
    assert check(chosen_algorithm(text)).vectorized < TIGHT


# --- SCAFFOLD -------------------------------------------------------------------------------------------------------
def by_difference(subject: Algorithm) -> Algorithm:
    pieces = (replace(p, control="difference") if isinstance(p, Scaffold) else p for p in subject.pieces)
    return replace(subject, pieces=tuple(pieces))


@pytest.mark.parametrize("oracle", ["scaffold", "scaffold_fedinit", "scaffold_p", "scaffold_p_fedinit"])
def test_under_plain_descent_the_difference_is_the_mean_gradient(oracle):
    hyper, f = ORACLES[oracle].EXAMPLE, FIXTURES["ragged"]
    run = follow(by_difference(build(oracle, **hyper)), f, **hyper)[1]
    assert furthest(run, ORACLES[oracle].run(f, **hyper)) < TIGHT


def test_under_fedals_the_difference_is_divided_by_the_last_step_size():
    """What the oracle of the mean gradient has for a wrong reading, where the step size decays in an interval."""
    oracle, f = ORACLES["fedals_scaffold"], FIXTURES["ragged"]
    run = follow(by_difference(build("fedals_scaffold", alpha=3)), f, alpha=3)[1]
    assert furthest(run, oracle.run(f, alpha=3, mutation="option_2")) < TIGHT
    assert furthest(run, oracle.run(f, alpha=3)) > SHOWS


def finished(text: str, **settings: Any) -> Any:
    given = {"algorithm": text, "clients": 5, "cohort": 0.4, "rounds": 3, "lift": "sequential"}
    return run_config(replace(CONFIG, **given | settings))[0]


def test_the_round_of_first_gradients_asks_everyone_and_moves_no_model():
    """And the clients that were silent in it begin with 0, as c says of them."""
    text, still = "scaffold_p(init_control=grad)", {"optimizer": "sgd(momentum=0.9, weight_decay=0.1)", "absent": 0.6}
    result = finished(text, rounds=1, **still)
    experiment, control = result.experiment, result.server.memory["Scaffold"]
    plan = experiment.plan(0)
    assert len(plan.cohort) == 5 > len(experiment.plan(1).cohort) == 2 and 0 < len(plan.absent) < 5
    assert torch.equal(result.server.params, experiment.federated.setup.initial)
    rows = [result.clients.row(client)[0]["memory.Scaffold.variate"] for client in range(5)]
    assert all(bool(row.any()) == (client not in plan.absent) for client, row in enumerate(rows))
    assert gap(control.variate, torch.stack(rows).mean(0)) < 1e-6
    personal = experiment.federated.setup.periods.never
    assert not control.variate[personal].any() and control.variate[~personal].any()


def test_the_round_of_first_gradients_is_counted():
    """A round like any other, with every client in it: x and c down, x and c_i up, by each that answers."""
    first, later = (finished("scaffold(init_control=grad)", rounds=n, absent=0.0).metrics[-1] for n in (1, 2))
    size = assemble(replace(CONFIG, algorithm="fedavg")).federated.setup.task.space.size
    for way in ("numbers_up", "numbers_down"):
        assert first[way] == 5 * 2 * size and later[way] - first[way] == 2 * 2 * size


WIRED = [
    "scaffold(control=difference)",
    "scaffold_p(init_control=grad)",
    "fedals(2, phase=first_step) + scaffold",
    "streaming_diloco(every=3, alpha=0.3) + scaffold",
    "rolora('*bias', '*weight') + relaxed_init(0.1)",
]


# a value catches what it needs of a message and a memory
@pytest.mark.slow
@pytest.mark.parametrize("text", [*WIRED, *VALUES[11:14]])
def test_wired_is_bitwise_sequential(text):
    config = replace(CONFIG, algorithm=text)
    assert same(run_config(config)[0], sequential(config))


# --- FedALS ---------------------------------------------------------------------------------------------------------
def test_a_schedule_from_the_first_step():
    """Round 0 closes all, and the intervals begin in round 1; an unseen client takes everything."""
    every = torch.tensor([1.0, 2.0, 3.0, NEVER])
    late, early = Schedule(every), Schedule(every, 1)
    assert torch.equal(early.closes(0), torch.tensor([True, True, True, False]))
    for t in range(1, 13):
        assert torch.equal(early.closes(t), late.closes(t - 1))
        for seen in range(t):
            before = late.opens(t - 1, seen - 1) if seen else late.opens(t - 1, -1)
            assert torch.equal(early.opens(t, seen), before) and bool(early.opens(t, -1).all())
            assert [bool(new) for new in early.opens(t, seen)] == list(early.pattern(t, seen))
            stacked = torch.vmap(early.opens)(torch.tensor([t, t]), torch.tensor([seen, -1]))
            assert torch.equal(stacked, torch.stack([before, early.opens(t, -1)]))
        assert torch.equal(early.returned(t).of(every), every[early.closes(t)])
    assert torch.equal(early.returned(0).of(every), every[:3]) and bool(early.opens(0, -1).all())


@pytest.mark.parametrize("settings", [{"steps": "3"}, {"epochs": 2}, {"steps": "uniform(0,3)"}], ids=str)
def test_the_first_round_is_one_step(settings):
    """Of every client that takes one at all, and of the first batch; the rounds behind it are as without the phase."""
    config = replace(CONFIG, algorithm="fedals(2, phase=first_step)", **settings)
    first, usual = (assemble(c) for c in (config, replace(config, algorithm="fedals(2)")))
    one, two = (Clients(e.federated, e.training, e.work, config.seed, None) for e in (first, usual))
    for client in first.training.participants:
        planned = two.steps(client, 0)
        assert one.steps(client, 0) == min(planned, 1) and one.steps(client, 1) == two.steps(client, 1)
        if planned:
            (batch,) = one.each(client, 0).batches
            assert torch.equal(batch, two.each(client, 0).batches[0])


def test_a_held_cohort_serves_the_first_step_alone_and_then_whole_intervals():
    experiment = assemble(replace(CONFIG, algorithm="fedals(3, cohort=held, phase=first_step)", clients=12))
    cohorts = [experiment.cohort_of(t) for t in range(10)]
    assert cohorts[1] == cohorts[2] == cohorts[3] != cohorts[4] == cohorts[5] == cohorts[6] != cohorts[7]
    assert cohorts[0] != cohorts[1]


def test_fedals_of_periods_by_text_is_fedals():
    """Bitwise, and what crosses with it; of a parameter that several terms name the longest period holds."""
    spelled = ["fedals(3)", "period(body, 3)", "fedals(1) + period(body, 3)", "period(body, 2) + period('fc1.*', 3)"]
    runs = [finished(text, rounds=6) for text in spelled]
    assert all(same(runs[0], run) for run in runs[1:])


def test_what_three_groups_send():
    """Each by its own period, over the three rounds of the slowest: the bias closes once there and opens twice."""
    found, bias, weight = cost("period('fc1.weight', 3) + period('fc1.bias', 2)"), 8, 64 * 8
    assert found.up == pytest.approx(HEAD + bias / 3 + weight / 3)
    assert found.down == pytest.approx(HEAD + bias * 2 / 3 + weight / 3)


# --- PeFLL ----------------------------------------------------------------------------------------------------------
# lifts catch padding in a mean, embeddings a layer that sees it
@pytest.mark.parametrize("lift", [Vectorized(6), Threaded(2)], ids=lambda lift: type(lift).__name__)
@pytest.mark.parametrize("embedding", ["linear", "cnn"])
def test_a_descriptor_of_all_samples_is_the_same_in_training_and_outside(embedding, lift):
    """Whichever lift, and however ragged the clients that are stacked in it: their padding is in no mean."""
    experiment = assemble(
        replace(CONFIG, algorithm=f"pefll(descriptor=all, embedding={embedding})", precision="float64")
    )
    federated, place = experiment.federated, experiment.training
    clients = Clients(federated, place, experiment.work, 0, lift)
    broadcast, server = federated.setup.broadcast, federated.start()
    shared = federated.shared(server, 0.1)._replace(model=server.params[: broadcast.split])
    assert len({place.size(client) for client in place.participants}) > 3
    said = clients.at(place.participants, frozenset(), 0).map("embed", shared).rows
    for client, row in said.items():
        assert gap(row.x, broadcast.describe(server.params, clients.at_rest(client))) < 1e-12
    assert len(said) == len(place.participants)


def test_a_batch_of_its_own_is_drawn_beside_those_of_the_steps():
    """Of a stream of its own: what the steps draw is as without it, and another in every round and client."""
    work = Work(2, None, 8)
    rows = [work.described(0, t, name, 30) for t in range(2) for name in ("a", "b")]
    assert all(len(set(r.tolist())) == 8 and int(r.max()) < 30 for r in rows)
    assert len({tuple(r.tolist()) for r in rows}) == 4 and len(work.described(0, 0, "a", 3)) == 3
    assert not torch.equal(rows[0], work.batches(0, 0, "a", 30, 2)[0])
    assert not any(named.pefll(descriptor=d).broadcast.complete(*setting()).own_batch for d in ("first", "all"))
    assert named.pefll().broadcast.complete(*setting()).own_batch


def setting() -> tuple[Space, FederationFacts]:
    return Space(torch.nn.Linear(6, 3)), FederationFacts((6,), 3, ["a"], [0], 0)


def test_what_crosses_is_the_same_whatever_a_descriptor_is_of():
    """Three small quantities each way (PeFLL, section 3): no sample, and nothing more for a larger batch."""
    costs = {cost(f"pefll(embedding=linear{more})") for more in ("", ", descriptor=all", ", descriptor=first")}
    assert len(costs) == 1 and cost("pefll(embedding=linear, server=sgd)").server < costs.pop().server


def test_names_say_what_is_not_usual():
    assert named.scaffold().name == "scaffold" and named.fedprox().name == "fedprox(mu=0.01)"
    assert named.scaffold("difference", "grad").name == "scaffold(control=difference, init_control=grad)"
    assert named.scaffold_p().name == "scaffold_p" and named.pefll().name == "pefll"
    assert named.scaffold_p(init_control="grad").name == "scaffold_p(init_control=grad)"
    assert named.pefll(server="sgd").name == "pefll(server=sgd)"
    assert named.fedcog(shuffle="each_pass").name == "fedcog(kd_weight=0.01, shuffle=each_pass)"
    assert named.fedprox(0.1, "server").name == "fedprox(mu=0.1, center=server)"
