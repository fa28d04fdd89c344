"""Pieces in a sum: in which order they are named decides nothing, and what would undo another is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from support.helpers import FullBatch, clusters, federate, gap, mlp, run
from support.outer import config
from torch import Tensor

from apiece.algebra.broadcast import FederationFacts
from apiece.algebra.composition import Algorithm, algorithm
from apiece.algebra.piece import Piece
from apiece.config.assemble import assemble, chosen_algorithm
from apiece.data.federation import Federation
from apiece.engine.predicting import predicting
from apiece.engine.stepping import Loop
from apiece.errors import UserError
from apiece.experiment.personalize import serve
from apiece.experiment.result import Result
from apiece.experiment.run import execute
from apiece.language import algorithms as named

STEP, COHORTS = 0.05, [[0, 1], [2, 3], [1, 2], [0, 3], [0, 1, 2, 3]]


def ended(text: str) -> Tensor:
    """The server's vector after five rounds of partial cohorts, all clients taking as many steps."""
    ran = run(
        federate(chosen_algorithm(text), mlp(), weighting="uniform"),
        clusters((12, 5, 26, 3)),
        FullBatch(3),
        COHORTS,
        STEP,
    )
    return ran.last


@pytest.mark.parametrize(
    ("sum_", "other", "alone"),
    [
        ("feddyn(0.5) + fednova", "fednova + feddyn(0.5)", "feddyn(0.5)"),
        ("relaxed_init(0.1, aggregate=delta) + fednova", "fednova + relaxed_init(0.1, aggregate=delta)",
         "relaxed_init(0.1, aggregate=delta)"),
        ("scaffold + fednova", "fednova + scaffold", "scaffold"),
        ("feddyn(0.5) + fedexp", "fedexp + feddyn(0.5)", ""),
        ("relaxed_init(0.1, aggregate=delta) + fedexp", "fedexp + relaxed_init(0.1, aggregate=delta)", ""),
    ],
)  # fmt: skip
def test_what_scales_the_mean_scales_what_clients_sent_and_nothing_else(sum_, other, alone):
    """Where all take as many steps FedNova is not there."""
    assert torch.equal(ended(sum_), ended(other))
    if alone:
        assert gap(ended(sum_), ended(alone)) < 1e-12 < gap(ended(alone), ended("fedavg"))
    else:
        assert gap(ended(sum_), ended(sum_.partition(" + ")[0])) > 1e-3  # it is not without effect


def made(**settings: Any) -> Result:
    quick = {"split": "dirichlet(0.3)", "steps": "5", "unseen": 1, "batch": 16, "rounds": 2, "model": "mlp(hidden=[8])"}
    return execute(assemble(config(**(quick | settings))))


def test_fine_tuning_goes_on_from_a_clients_own_model_wherever_it_is_named():
    one, other = (
        made(algorithm=text) for text in ("fine_tune(epochs=2) + ditto(1.0)", "ditto(1.0) + fine_tune(epochs=2)")
    )
    assert one.accuracy == other.accuracy != made(algorithm="ditto(1.0)").accuracy


@dataclass(frozen=True)
class Shrinking(Piece):
    """A penalty that nobody has heard of."""

    def objective(self, view, loss):
        return lambda theta, batch: loss(theta, batch) + theta.square().sum()


@dataclass(frozen=True)
class Noisy(Piece):
    """A correction that nobody has heard of."""

    def correct(self, view):
        return (), lambda scratch, g, theta, batch: (scratch, g + 1)


REFUSED = [
    *(("pfedme", other) for other in ("fedcog", "moon", "feddecorr", "scaffold", "fedprox(0.1)", "feddyn", "vhl")),
    *(("pfedme", other) for other in ("ditto", "apfl")),
    ("ditto", "apfl"),
    ("fednova", "fedexp"),
]


@pytest.mark.parametrize(("one", "other"), REFUSED)
def test_what_would_be_undone_is_refused_in_either_order(one, other):
    for text in (f"{one} + {other}", f"{other} + {one}"):
        with pytest.raises(UserError, match="cannot be composed"):
            chosen_algorithm(text)


@pytest.mark.parametrize("piece", [Shrinking(), Noisy()])
def test_pfedme_refuses_what_is_in_the_gradient_whoever_made_it(piece):
    with pytest.raises(UserError, match="replaces the gradient"):
        named.pfedme() + algorithm(piece, name="mine")
    assert isinstance(named.pfedme() + named.relaxed_init(0.1), Algorithm)


def test_a_ditto_of_personal_parameters_is_held_near_the_clients_own():
    """With a pull so strong that v_i rests there: not at the initial head, which nobody moves."""
    federated, seen = federate(chosen_algorithm("fedper(epochs=0) + ditto(lam=15)"), mlp()), {}

    def after(t, clients):
        seen[t] = [clients.row(client)[0] for client in range(4)]

    run(federated, clusters((12, 5, 26, 3)), FullBatch(40), [[0, 1, 2, 3]] * 3, STEP, after=after)
    head, initial = federated.setup.periods.never, federated.setup.initial
    for before, now in zip(seen[1], seen[2], strict=True):
        began, beside = before["model"], now["memory.Ditto.model"][0][head]
        assert gap(beside, began) < 0.2 * gap(began, initial[head]) and gap(began, now["model"]) > 0.05


@pytest.mark.parametrize("subject", ["fedper(epochs=0) + fedgen", "fedgen"])
def test_a_last_layer_that_is_personal_is_not_said(subject):
    """The server has of it what it began with."""
    place = clusters((12, 5))
    setting = FederationFacts((6,), 3, place.names, place.participants, 0)
    federated = federate(chosen_algorithm(subject), mlp(), setting=setting)
    ran = run(federated, place, FullBatch(3), [[0, 1]], STEP)
    head = federated.setup.task.space.select("head")
    for client, row in ran.answers[0].rows.items():
        origin, *units = row.reports[-1].scores.x
        said = torch.cat([(torch.stack(units) - origin).T.reshape(-1), origin])
        assert (gap(said, federated.setup.initial[head]) < 1e-12) == ("fedper" in subject), client


# --- statistics go with the parameters that they were made with ------------------------------------------------------
def statistics(text: str, client: int) -> tuple[Tensor, Result]:
    """What a client predicts with of BatchNorm's statistics, after a run on images."""
    result = made(algorithm=text, model="resnet20", clients=3, steps="2", lr=0.02, buffers="average")
    federated, server, clients = result.experiment.federated, result.server, result.clients
    each, shared = clients.each(client, server.round), federated.shared(server, 0.02)
    return predicting(federated.setup, Loop(), server.params, server.buffers, shared, each)[1], result


@pytest.mark.slow
def test_a_newcomers_own_statistics_are_of_its_own_data():
    found, result = statistics("local(epochs=1)", client=2)
    assert gap(found, result.experiment.federated.setup.initial_buffers) > 0.01


@pytest.mark.slow
def test_a_served_clients_own_statistics_are_of_its_own_data():
    result = statistics("fedbn", client=2)[1]
    f = result.experiment.federation
    place = Federation(f.pool, f.test_pool, [f.train[2]], [f.test[2]], ["new"])
    state, initial = serve(result, place).state, result.experiment.module.state_dict()
    moved = [name for name in initial if name.endswith("running_mean")]
    assert moved and all(gap(state[name], initial[name]) > 1e-4 for name in moved)


@pytest.mark.slow
def test_a_shared_bodys_statistics_stay_with_it():
    found, result = statistics("fedper(epochs=1)", client=2)
    assert torch.equal(found, result.server.buffers)


@pytest.mark.slow
def test_fine_tuned_parameters_have_statistics_of_the_same_training():
    found, result = statistics("fedavg + fine_tune(epochs=1)", client=0)
    assert gap(found, result.server.buffers) > 0.01
    untouched, other = statistics("fedavg + fine_tune(epochs=0)", client=0)
    assert torch.equal(untouched, other.server.buffers)
