"""Drift from running sums equals the direct sums over the clients' models."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.helpers import KEEPS_ALL, clusters, federate, mlp
from support.outer import config

from apiece.config.assemble import assemble
from apiece.engine.state import Plan
from apiece.experiment import run
from apiece.experiment.choice import lift_of
from apiece.experiment.clients import clients_of
from apiece.language import algorithms
from apiece.measure.drift import Running, dissimilarity

SETTINGS: dict[str, Any] = {"model": "mlp(hidden=[8])", "split": "dirichlet(0.3)", "precision": "float64",
    "cohort": 0.5, "rounds": 5}  # fmt: skip
RECIPES = ["fedavg", "scaffold + relaxed_init(beta=0.1)", "fedprox(mu=0.1)", "fedals(alpha=2)",
    "fedals(alpha=3, cohort=held) + scaffold", "scaffold_p", "fedavg_p + relaxed_init(beta=0.1, aggregate=delta)",
    "local"]  # fmt: skip


# recipes catch a model that is not the one kept, absence a sum over the cohort that was asked
@pytest.mark.parametrize("algorithm", RECIPES)
@pytest.mark.parametrize("absent", [0.0, 0.3])
def test_divergence_and_consensus_are_the_direct_sums(algorithm, absent):
    """Over the cohort that answered, and over all clients, those that never trained at the initial model."""
    experiment = assemble(config(algorithm=algorithm, absent=absent, **SETTINGS))
    federated = experiment.federated
    clients = clients_of(experiment, None, "", lift_of(experiment).lift)
    state = run.first(experiment)
    shared, layers = federated.setup.periods.shared, federated.setup.task.space.layer_index()

    for t in range(5):
        before = state.server
        state, info = run._round(experiment, clients, state, experiment.plan(t))
        kept = torch.stack([clients.row(c)[0]["model"] for c in range(clients.registered)])
        answered = [c for c in clients.touched() if clients.last_round(c) == t]
        assert info["answered"] == len(answered)
        if not answered:
            assert "divergence_selected" not in info
            continue
        distance = (kept - state.server.params) * shared
        direct = float(distance[answered].square().sum(1).mean())
        assert info["divergence_selected"] == pytest.approx(direct, rel=1e-9, abs=1e-14)
        initial = (state.server.params - federated.setup.initial) * shared
        every = ((kept - federated.setup.initial) * shared - initial).square().sum(1).mean()
        assert info["divergence_all"] == pytest.approx(float(every), rel=1e-9, abs=1e-14)
        own = kept[answered]
        spread = ((own - own.mean(0)) * shared).square().mean(0)
        for number, name in enumerate(federated.setup.task.space.layers):
            if shared[layers == number].any():
                assert info["consensus"][name] == pytest.approx(
                    float(spread[layers == number].sum()), rel=1e-9, abs=1e-14
                ), name
        assert set(info["consensus"]) == {
            n for i, n in enumerate(federated.setup.task.space.layers) if shared[layers == i].any()
        }
        if algorithm == "fedavg":
            norms = (before.params - own).norm(dim=1)
            assert info["update_norm_mean"] == pytest.approx(float(norms.mean()))
            assert info["update_norm_std"] == pytest.approx(float(norms.std(unbiased=False)), abs=1e-12)


def test_divergence_of_clients_that_are_the_model_is_not_negative():
    """Their sums end a little above or below nothing: a distance is never below."""
    initial, sums = torch.zeros(3), Running(torch.tensor([1.0, 0, 0], dtype=torch.float64), torch.tensor(1.0 - 1e-8))
    assert sums.divergence(torch.tensor([1.0, 0, 0]), initial, 1) == 0.0
    assert sums.divergence(torch.tensor([2.0, 0, 0]), initial, 1) == pytest.approx(1.0)


def test_gradient_dissimilarity():
    g = torch.randn(7, generator=torch.Generator().manual_seed(0))
    assert dissimilarity([g, g, g]) == pytest.approx(1.0)
    assert dissimilarity([torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])]) == pytest.approx(2.0)
    assert dissimilarity([g, -g]) > 1e20


def test_gradient_dissimilarity_of_identical_clients_is_one():
    from apiece.data.federation import Federation
    from apiece.engine.clients import Clients
    from apiece.engine.work import Work
    from apiece.lifts.lift import Sequential
    from apiece.measure.evaluate import Evaluation, Panel

    one = clusters(sizes=(40,))
    rows = [one.train[0]] * 5
    place = Federation(one.pool, one.pool, rows, rows, [f"c{i}" for i in range(5)])
    federated = federate(algorithms.fedavg(), mlp(), watch=KEEPS_ALL)
    clients = Clients(federated, place, Work(1, None, 40), 0, Sequential())
    server, _ = federated.round(federated.start(), clients, Plan([0, 1, 2, 3, 4], frozenset(), 0.1))
    clients.commit(0)
    assert Evaluation(federated, place, clients, Panel(10), 1)(server, 0.1, True)[0][
        "gradient_dissimilarity"
    ] == pytest.approx(1.0, abs=1e-12)
    kept = [clients.row(c)[0]["model"] for c in range(5)]
    assert all(torch.allclose(model, server.params, atol=1e-12) for model in kept)


def test_gradient_dissimilarity_falls_as_clients_grow_alike():
    def measured(split: str) -> float:
        result = run.execute(assemble(config(**SETTINGS | {"split": split, "rounds": 1})))
        return result.metrics[-1]["gradient_dissimilarity"]

    assert 1 < measured("iid") < measured("dirichlet(1.0)") < measured("shards(1)")
