"""Models that draw as they train: the same run under every lift and after every stop, and chance where it belongs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from support import tiers
from support.drawing import MODELS, dense, made
from support.helpers import clusters, gap, run
from support.helpers import federate as engine
from support.wired import CONFIG, same
from torch import Tensor, nn

from apiece import Piece, Sum, View, algorithm, federate
from apiece.engine.work import Between, Work
from apiece.experiment.launch import run_config
from apiece.experiment.personalize import personalize
from apiece.language import algorithms as named
from apiece.lifts.compiled import Compiled
from apiece.lifts.lift import Sequential, Vectorized

SMALL: dict[str, Any] = {
    "data": "digits",
    "clients": 6,
    "rounds": 3,
    "steps": "uniform(2,4)",
    "batch": 8,
    "cohort": 0.5,
}
SMALL |= {"split": "dirichlet(0.3)", "workers": 2, "unseen": 1}
SUMS = ("fedavg", "scaffold", "fedals(2)", "fedavg_p", "scaffold_p", "relaxed_init", "pefll")
SUMS += ("fedcog(samples=16, steps=5)", "fedsam", "per_fedavg(variant=hessian_free)", "ditto + fine_tune", "apfl")


pytestmark = pytest.mark.usefixtures("no_report")


def trained(model: str | nn.Module, lift: str = "sequential", **more: Any) -> Any:
    return federate(made(model) if isinstance(model, str) else model, lift=lift, **(SMALL | more))


def apart(one: Any, two: Any) -> float:
    """How far the models of two runs are from one another, those of every client too."""
    clients = (None, *one.experiment.training.participants)
    return max(gap(a, b) for c in clients for a, b in zip(one.model(c).values(), two.model(c).values(), strict=True))


# --- lifts -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("model", tiers.but(("perceptron",), MODELS))
def test_lifts_of_the_exact_class_are_bitwise_one(model):
    alone = trained(model)
    for lift in ("threaded", "processes"):
        other = trained(model, lift)
        assert apart(alone, other) == 0 and alone.metrics[-1]["train_loss"] == other.metrics[-1]["train_loss"]
    assert apart(alone, trained(model, seed=1)) > 1e-3


@pytest.mark.parametrize("model", MODELS)
def test_the_vectorized_lift_draws_the_same(model):
    alone = trained(model, precision="float64")
    assert apart(alone, trained(model, "vectorized", precision="float64")) < 1e-12


@pytest.mark.parametrize("text", tiers.but(SUMS[:3], SUMS))
def test_whatever_the_algorithm(text):
    alone = trained("perceptron", algorithm=text, precision="float64")
    assert apart(alone, trained("perceptron", "threaded", algorithm=text, precision="float64")) == 0
    assert apart(alone, trained("perceptron", "vectorized", algorithm=text, precision="float64")) < 1e-10
    assert apart(alone, trained(dense(), algorithm=text, precision="float64")) > 1e-6


def drawing() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Dropout(0.4), nn.Linear(5, 3))


@pytest.mark.slow
def test_compiled_steps_are_alike_and_no_later_round_is_recorded():
    """Two kinds of step in the first round, the first and all others; other keys are other inputs."""
    compiled: list[Any] = []
    lift = Compiled(4, compiler=lambda graph: compiled.append(graph) or graph)
    place, work, cohorts = clusters((12,) * 8), Work(6, None, 4), [range(8)] * 3
    ran = run(engine(named.scaffold(), drawing()), place, work, cohorts, lift=lift)
    assert len(lift.programs) == 1 and len(compiled) == 2 and not lift.refused
    alone = run(engine(named.scaffold(), drawing()), place, work, cohorts, lift=Sequential())
    assert gap(ran.last, alone.last) < 1e-12


@pytest.mark.slow
def test_compiled_by_torch():
    alone = trained("deep", precision="float64")
    assert apart(alone, trained("deep", "compiled", precision="float64")) < 1e-12


WITH_DROPOUT = '''
from dataclasses import dataclass
from torch import nn
import apiece

@dataclass(frozen=True)
class Dropped(apiece.Piece):
    """The model with dropout of its inputs."""

    p: float = 0.3

    @classmethod
    def neutral(cls):
        return cls(0.0), "fedavg"

    def prepare(self, module):
        return nn.Sequential(nn.Flatten(), nn.Dropout(self.p), module)

def dropped(p: float = 0.3):
    """Dropout of the inputs."""
    return apiece.algorithm(Dropped(p), name="dropped")
'''


@pytest.mark.slow
def test_clients_in_processes_of_their_own(tmp_path):
    """What they draw follows from their name and the run's text."""
    (tmp_path / "mine.py").write_text(WITH_DROPOUT)
    config = replace(CONFIG, plugin=(str(tmp_path / "mine.py"),), algorithm="dropped + scaffold", rounds=3)
    wired, alone = (run_config(replace(config, lift=lift))[0] for lift in ("wired", "sequential"))
    assert same(wired, alone)
    none = run_config(replace(config, algorithm="dropped(0.0) + scaffold", lift="sequential"))[0]
    assert not same(alone, none)


# --- stops -----------------------------------------------------------------------------------------------------------
class Stop(Exception):
    """The run is stopped by its watcher."""


@pytest.mark.slow
@pytest.mark.parametrize("lift", ["threaded", "vectorized"])
def test_a_run_that_was_stopped_goes_on_bitwise(tmp_path, lift):
    def stop(info: dict[str, Any]) -> None:
        if info["round"] == 2:
            raise Stop

    settings = {"rounds": 5, "algorithm": "ditto + fine_tune", "resume": True}
    whole = trained("perceptron", lift, out=str(tmp_path / "whole"), **settings)
    with pytest.raises(Stop):
        trained("perceptron", lift, out=str(tmp_path / "stopped"), on_round=stop, **settings)
    again = trained("perceptron", lift, out=str(tmp_path / "stopped"), **settings)
    assert apart(whole, again) == 0
    for one, other in zip(whole.metrics, again.metrics, strict=True):
        assert {k: v for k, v in one.items() if k != "seconds"} == {k: v for k, v in other.items() if k != "seconds"}


# --- where there is chance, and where there is none ------------------------------------------------------------------
def test_dropout_of_nothing_is_bitwise_none():
    """And beside another layer that draws, it takes no place among the draws."""
    for without, within in (((), (nn.Dropout(0.0),)), ((nn.Dropout(0.3),), (nn.Dropout(0.0), nn.Dropout(0.3)))):
        for lift in ("sequential", "vectorized"):
            one, two = (trained(dense(*between), lift, algorithm="scaffold") for between in (without, within))
            assert all(torch.equal(a, b) for a, b in zip(one.model().values(), two.model().values(), strict=True))
            assert one.metrics[-1]["train_loss"] == two.metrics[-1]["train_loss"]


def test_whether_a_model_draws_is_found_once():
    for layer, draws in ((nn.Dropout(0.3), True), (nn.Dropout(0.0), False), (nn.Tanh(), False)):
        experiment = trained(dense(layer), rounds=1).experiment
        assert experiment.federated.setup.task.draws is draws


def test_nothing_is_drawn_where_a_model_is_evaluated():
    result = trained("perceptron")
    module = made("perceptron").eval()
    module.load_state_dict(result.model())
    x, y = result.experiment.federation.test_pool
    right = (module(x).argmax(1) == y).float().mean()
    assert abs(result.metrics[-1]["global_accuracy"] - float(right)) < 1e-6


class Looking(nn.Linear):
    """Remembers what it drew."""

    seen: list[Tensor] = []

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        drawn = [torch.rand_like(input) for _ in range(2)]
        self.seen.extend(drawn)
        return super().forward(input * drawn[0] * drawn[1])


@dataclass(frozen=True)
class Twice(Piece):
    """Takes a second gradient on each batch, and trains once more."""

    def correct(self, view: View):
        def rule(scratch, g, theta, batch):
            assert torch.equal(view.task.gradient(theta, batch), g)
            return scratch, g

        return (), rule

    def remember(self, view: View):
        view.descend(view.start)
        return ()


def test_masks_are_each_clients_rounds_steps_and_places_own():
    """A step's are the same in every forward pass of it; those of a second training are others."""
    Looking.seen.clear()
    run(engine(algorithm(Twice(), name="twice"), Looking(6, 3)), clusters((12,) * 3), Work(2, None, 4), [range(3)] * 2)
    seen = torch.stack(Looking.seen).view(2, 3, 6, 2, 4, 6)  # rounds, clients, passes, places, samples, features
    steps, again = seen[:, :, :4].unflatten(2, (2, 2)), seen[:, :, 4:]
    assert torch.equal(steps[:, :, :, 0], steps[:, :, :, 1])
    masks = torch.cat([steps[:, :, :, 0], again], 2).flatten(0, 3).flatten(1)  # [2 * 3 * 4 * 2, 24]
    apart = np.corrcoef(masks.double().numpy())[np.triu_indices(48, 1)]
    assert abs(apart).max() < 0.8 and abs(apart.mean()) < 0.02 and abs(apart.std() * 24**0.5 - 1) < 0.1
    assert len(masks.unique()) > masks.numel() - 3  # no two samples' are one


@dataclass(frozen=True)
class Beside(Piece):
    """Trains elsewhere before the round's own steps, and throws it away."""

    def objective(self, view: View, loss: Any):
        view.descend(view.sent, batches=[view.data.index.new_zeros(2)] * 5)
        return loss


@pytest.mark.parametrize("lift", [Sequential(), Vectorized(3)], ids=lambda lift: type(lift).__name__)
def test_a_training_beside_the_rounds_own_leaves_its_masks_alone(lift):
    """Also where it comes first, and takes another number of steps."""
    subjects = named.fedavg(), algorithm(Beside(), name="beside")
    data, work = clusters((12,) * 3), Work(3, None, 4)
    one, other = (run(engine(s, drawing()), data, work, [range(3)] * 2, lift=lift) for s in subjects)
    assert gap(one.last, other.last) == 0


@dataclass(frozen=True)
class After(Piece):
    """Says a gradient that it takes when all steps are taken."""

    def report(self, view: View):
        return Sum(view.task.gradient(view.sent, view.data.batch(view.data.index.new_zeros(4))))


def test_what_is_drawn_after_the_steps_is_the_rounds():
    """However many steps others take in the same call."""
    work, place, said = Work(Between(1, 4), None, 4), clusters((12,) * 4), []
    for lift in (Sequential(), Vectorized(4)):
        ran = run(engine(algorithm(After(), name="after"), drawing()), place, work, [range(4)] * 2, lift=lift)
        said.append([answer.mean.reports[0].x for answer in ran.answers])
    assert max(gap(one, other) for one, other in zip(*said, strict=True)) < 1e-12 and gap(*said[0]) > 1e-3


def test_they_go_by_a_clients_name_and_not_by_its_number():
    """Clients in another order, of the same names and data: the same mean of the same models."""
    place, ended = clusters((12,) * 4), []
    for order in ([0, 1, 2, 3], [2, 0, 3, 1]):
        moved = replace(place, train=[place.train[i] for i in order], names=[place.names[i] for i in order])
        ended.append(run(engine(named.scaffold(), drawing()), moved, Work(3, None, 4), [range(4)] * 3).last)
    assert gap(*ended) < 1e-12


def test_a_new_client_is_served_the_same_twice(tmp_path):
    result = trained("perceptron", algorithm="fine_tune")
    data = result.experiment.dataset
    np.savez(tmp_path / "new.npz", x_train=data.x_test[:40], y_train=data.y_test[:40])
    once, twice = (personalize(result, tmp_path / "new.npz").state for _ in range(2))
    assert all(torch.equal(once[name], twice[name]) for name in once)
