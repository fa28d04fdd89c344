"""FedReg, FedGen and VHL beyond their oracles: what is made, drawn and sent, and classes that are never predicted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support import tiers
from support.helpers import KEEPS_ALL, FullBatch, clusters, federate, federation, gap, mlp, models, run
from support.modules import Convolutional, skewed
from torch import nn

from apiece.algebra.broadcast import FederationFacts
from apiece.algebra.composition import algorithm
from apiece.algebra.draws import Draw, draw
from apiece.algebra.message import PerClient, Uniform
from apiece.algebra.optim import Sgd
from apiece.algebra.piece import Piece
from apiece.config.assemble import assemble
from apiece.config.settings import Config
from apiece.contract import check
from apiece.engine.clients import Clients
from apiece.engine.predicting import predicting
from apiece.engine.stepping import Loop
from apiece.engine.work import Work
from apiece.errors import UserError
from apiece.experiment.launch import federate as program
from apiece.language import algorithms as named
from apiece.lifts.lift import Sequential, Vectorized
from apiece.pieces.contrast import contrast
from apiece.pieces.fedgen import FedGen
from apiece.pieces.fedreg import FedReg
from apiece.pieces.vhl import VHL
from apiece.pieces.wider_head import WiderHead, widened

SETTING = FederationFacts((6,), 3, [f"c{i}" for i in range(5)], range(5), 0)
QUICK: dict[str, Any] = {
    "fedreg": named.fedreg(steps=2, batches=2),
    "fedgen": named.fedgen(epochs=2, hidden=8, noise=4, batch=8),
    "vhl": named.vhl(samples=30, batch=8, epochs=1),
}
SEEN: list[Any] = []


def prepared(subject: Any, module: nn.Module | None = None, **settings: Any) -> Any:
    module = module or mlp()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for piece in subject.pieces:
            module = piece.prepare(module)
    return federate(subject, module, setting=SETTING, **settings)


class Watched(Piece):
    """Hands its view out to a test."""

    @classmethod
    def neutral(cls):
        return cls(), "fedavg"

    def objective(self, view, loss):
        SEEN.append((view, loss))
        return loss


def views(subject: Any, data: Any = None, rounds: int = 2, **settings: Any) -> list[Any]:
    """(view, composed objective) of every participation, all clients each round."""
    SEEN.clear()
    data = data or skewed()
    watched = replace(subject, pieces=(*subject.pieces, Watched()))
    run(prepared(watched, **settings), data, FullBatch(4), [list(range(len(data.names)))] * rounds, 0.3)
    return list(SEEN)


# --- composing ------------------------------------------------------------------------------------------------------
# both catch a slot that one fills over the other
@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("other", tiers.but(("fedals",), ["relaxed_init", "scaffold", "fedals", "fedper"]))
def test_composed(name, other):
    other = {"fedals": lambda: named.fedals(2)}.get(other, getattr(named, other))()
    check(QUICK[name] + other)


@pytest.mark.slow
def test_all_that_fits_together():
    check(QUICK["vhl"] + QUICK["fedreg"] + named.fedcog(steps=2, samples=8) + named.relaxed_init(0.1, "delta"))
    check(QUICK["fedgen"] + QUICK["fedreg"] + named.moon() + named.fedals(2))


@pytest.mark.parametrize("name", QUICK)
def test_samples_that_are_other_than_numbers_of_one_class_are_refused(name):
    tokens = federation([np.zeros((4, 6), dtype=np.int64)], [np.zeros(4, dtype=np.int64)], dtype=torch.int64)
    several = federation([np.ones((4, 6))], [np.ones((4, 3))])
    embedded = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(18, 3))
    if name != "fedgen":  # which makes features, whatever inputs are
        with pytest.raises(UserError, match="must be real numbers"):
            run(prepared(QUICK[name], embedded), tokens, FullBatch(1), [[0]] * 2)
    bce = F.binary_cross_entropy_with_logits
    if name == "fedreg":  # which knows of several labels
        assert torch.isfinite(run(prepared(QUICK[name], loss=bce), several, FullBatch(2), [[0]] * 2).last).all()
        return
    with pytest.raises(UserError, match="labels"):
        run(prepared(QUICK[name], loss=lambda o, y: o.sum() * 0), several, FullBatch(1), [[0]] * 2)


# names and shapes catch a size taken from another axis
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 7), (2, 4)])
def test_any_shape_of_inputs_under_both_lifts(name, shape):
    module = Convolutional(shape[0]) if len(shape) == 3 else nn.Sequential(nn.Flatten(), mlp(int(np.prod(shape))))
    one, two = (
        run(prepared(QUICK[name], module), skewed((5, 4, 6), shape), FullBatch(2), [[0, 1, 2]] * 3, lift=lift)
        for lift in (Sequential(), Vectorized(3))
    )
    assert gap(one.last, two.last) < 1e-10


# --- draws of a run -------------------------------------------------------------------------------------------------
def test_draws_of_a_run_are_the_same_for_everyone():
    asked = (Draw("noise", (3,), each="run"), Draw("own", (3,)))
    drawn = [draw(asked, 7, t, who, "P", 4, torch.float64) for t, who in ((0, "a"), (0, "b"), (5, "a"))]
    assert all(torch.equal(d["noise"], drawn[0]["noise"]) for d in drawn)
    assert len({tuple(d["own"].tolist()) for d in drawn}) == 3
    others = (draw(asked, 8, 0, "a", "P", 4, torch.float64), draw(asked, 7, 0, "a", "Q", 4, torch.float64))
    assert not any(torch.equal(other["noise"], drawn[0]["noise"]) for other in others)


# --- VHL ------------------------------------------------------------------------------------------------------------
def test_the_wider_head_keeps_what_was_there_and_is_drawn_from_the_seed():
    config = Config(algorithm="vhl", clients=4, model="mlp(hidden=[8])")
    plain = assemble(replace(config, algorithm="fedavg")).federated
    state = lambda: (lambda f: f.setup.task.space.state_dict(f.setup.initial))(assemble(config).federated)
    torch.manual_seed(5)
    one = state()
    torch.manual_seed(6)
    two = state()
    was = plain.setup.task.space.state_dict(plain.setup.initial)
    assert one["head.weight"].shape == (20, 8) and all(torch.equal(a, b) for a, b in zip(one.values(), two.values()))
    assert torch.equal(one["fc1.weight"], was["fc1.weight"])
    assert torch.equal(one["head.weight"][:10], was["head.weight"]) and one["head.weight"][10:].abs().min() > 0


def test_extra_classes_are_scored_in_training_alone():
    federated = prepared(QUICK["vhl"])
    space, theta, none = federated.setup.task.space, federated.setup.initial, federated.setup.initial_buffers
    x = torch.randn(7, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    outputs, scores = space.outputs(theta, x, none), space.training_outputs(theta, x, none)[0]
    assert outputs.shape == (7, 3) and scores.shape == (7, 6) and torch.equal(outputs, scores[:, :3])
    assert torch.equal(space.head(theta, space.features(theta, x, none)), scores)
    assert not space.select("body")[-36:].any() and space.select("head").sum() == 36


def test_a_module_that_is_one_layer_or_none_is_told():
    assert isinstance(widened(nn.Linear(4, 2)), WiderHead)
    mine = nn.Sequential(nn.Linear(4, 2))
    assert widened(mine)[0].out_features == 4 and mine[0].out_features == 2  # a copy
    for module in (nn.Sequential(nn.Conv2d(1, 2, 3)), nn.Sequential(nn.LayerNorm(3))):
        with pytest.raises(UserError, match="end in Linear"):
            widened(module)


def test_a_run_measures_and_saves_the_wider_model():
    """Global, personal and unseen accuracies are of the classes that exist; the model is loaded by its own module."""
    result = program(
        "mlp(hidden=[8])", "digits", "vhl(samples=60, batch=16)", rounds=3, clients=5, unseen=1, steps="3", lr=0.1
    )
    last, experiment = result.metrics[-1], result.experiment
    state = result.model()
    experiment.module.load_state_dict(state)
    x, y = experiment.federation.test_pool
    scores = experiment.module.eval()(x).detach()
    assert scores.shape[1] == 10 and state["head.weight"].shape == (20, 8)
    assert last["global_accuracy"] == pytest.approx(float((scores.argmax(1) == y).double().mean()))
    assert last["global_loss"] == pytest.approx(float(F.cross_entropy(scores, y)), rel=1e-4)
    assert {"personal_accuracy_mean", "unseen_accuracy", "adapted_accuracy"} <= set(last)


def test_the_noise_is_one_set_in_an_order_of_each_client():
    piece, sets, orders = VHL(samples=30, batch=8), [], []
    for view, _ in views(algorithm(piece, name="vhl")):
        drawn = clients_draws(view, piece)
        sets.append((drawn["middles"], drawn["spread"]))
        orders.append(tuple(drawn["order"].argsort().tolist()))
    assert all(torch.equal(a, b) for one in sets for a, b in zip(one, sets[0], strict=True))
    assert len(set(orders)) == len(orders) == 6 and sets[0][0].shape == (3, 6) and sets[0][1].shape == (30, 6)


def clients_draws(view: Any, piece: VHL) -> dict[str, torch.Tensor]:
    space = prepared(algorithm(piece, name="vhl")).setup.task.space
    return draw(piece.draws(space), 0, view.round, f"c{view.who}", "VHL", 4, torch.float64, (6,))


def test_images_are_coarse():
    coarse = VHL(samples=20).draws(prepared(algorithm(VHL(), name="vhl")).setup.task.space)[:2]
    assert [d.shape((3, 32, 32)) for d in coarse] == [(3, 3, 8, 8), (20, 3, 8, 8)]
    assert [d.shape((1, 7, 28)) for d in coarse] == [(3, 1, 7, 8), (20, 1, 7, 8)]


def test_contrast_is_least_where_classes_are_apart():
    labels = torch.tensor([0, 0, 1, 1])
    apart = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0], [0.0, 1.0]])
    assert float(contrast(apart, labels)) < 1e-5 < 10 < float(contrast(apart, torch.tensor([0, 1, 0, 1])))
    assert float(contrast(apart, torch.arange(4))) == 0.0  # nobody is like another
    ones = torch.ones(4, 2, requires_grad=True)
    assert float(contrast(ones, torch.zeros(4)).detach()) == pytest.approx(np.log(3), rel=1e-5)
    assert torch.isfinite(torch.autograd.grad(contrast(ones, labels), ones)[0]).all()


# --- FedReg -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("several", [False, True])
def test_a_step_forgets_nothing_to_first_order(several):
    """What is left of the way from the start climbs neither the pseudo samples' divergence nor the other loss."""
    data, loss = skewed(), None
    if several:
        x = [np.random.default_rng(i).normal(size=(9, 6)) for i in range(2)]
        data = federation(x, [np.eye(3)[[0, 1, 2] * 3]] * 2)
        loss = F.binary_cross_entropy_with_logits
    piece = FedReg(steps=3, perturbed=0.5)
    for view, _ in views(algorithm(piece, name="fedreg"), data, **({"loss": loss} if several else {})):
        batch = view.data.batch(view.batches[0])
        scratch, rule = piece.correct(view._replace(step=lambda: 0))
        theta = view.start + 0.01 * torch.sin(torch.arange(len(view.start), dtype=torch.float64))
        g = view.task.gradient(theta, batch)
        after = theta - view.lr * rule(scratch, g, theta, batch)[1]
        ahead = theta - view.lr * g
        climbed = piece._climbed(view, batch, piece.perturbed)
        kept = view.task.gradient((ahead + view.start) / 2, (climbed, batch[1]))
        assert float((after - view.start) @ kept) < 1e-12
        assert (after - ahead).abs().max() > 1e-6 and (after - view.start).norm() <= (ahead - view.start).norm()


def test_pseudo_samples_climb_the_global_models_loss_by_so_much():
    piece = FedReg(steps=4, pseudo=0.25)
    for view, _ in views(algorithm(piece, name="fedreg")):
        x, y = view.data.all()
        made = piece._climbed(view, (x, y), piece.pseudo)
        steps = ((made - x) / piece.pseudo).round()
        assert gap(made - x, piece.pseudo * steps) < 1e-12 and steps.abs().max() <= 4
        before, after = (view.task.loss(view.task.outputs(view.sent, at), y) for at in (x, made))
        assert after > before


def test_the_first_round_of_one_slow_step_is_fedavgs_but_for_what_is_forgotten():
    """gamma is of no account at the start; nothing was made, so nothing but the loss's own curvature is projected."""
    slow = [named.fedreg(gamma=g, pseudo=0.0, perturbed=0.0) for g in (0.25, 1.0)]
    one, two = (run(prepared(of, watch=KEEPS_ALL), clusters(), FullBatch(1), [[0, 1]]) for of in slow)
    assert torch.equal(models(one), models(two))


# --- FedGen -----------------------------------------------------------------------------------------------------------
class Told(Piece):
    """Every client says its number and how many samples it has, seen one by one, and their mean."""

    @classmethod
    def neutral(cls):
        return cls(), "fedavg"

    def report(self, view):
        who = torch.as_tensor(view.who, dtype=view.end.dtype)
        return {"rows": PerClient(who.reshape(1)), "mean": Uniform(who), "more": PerClient(2 * who)}

    def learn(self, memory, g, report, share):
        SEEN.append(report)
        return g, memory


@pytest.mark.parametrize("lift", [Sequential(), Vectorized(2)], ids=repr)
def test_rows_reach_the_server_in_the_cohorts_order(lift):
    SEEN.clear()
    run(prepared(algorithm(Told(), name="told")), clusters(), FullBatch(1), [[3, 0, 4, 1]], lift=lift, absent={0: {4}})
    (report,) = SEEN
    assert report["rows"].x.tolist() == [[3.0], [0.0], [1.0]] and report["more"].x.tolist() == [6.0, 0.0, 2.0]
    assert float(report["mean"].x) == pytest.approx(4 / 3)


def test_clients_say_their_last_layer_and_labels_and_are_told_the_generator():
    federated = prepared(QUICK["fedgen"])
    ran = run(federated, skewed(), FullBatch(2), [[0, 1, 2]] * 2)
    told = sum(leaf.numel() for leaf in federated.shared(ran.servers[-1], 0.1).from_server["FedGen"])
    size = federated.setup.task.space.size
    for answer in ran.answers:
        assert answer.traffic.control_up == 3 * (6 * 3 + 3) and answer.traffic.parameters_up == 3 * size
        assert answer.traffic.control_down == 3 * told
        for client, row in answer.rows.items():
            assert row.reports[0].counts.x.tolist() == [(30, 24, 18)[client] * (client == c) for c in range(3)]
    layer = answer.rows[2].reports[0].scores.x
    end = models(run(prepared(QUICK["fedgen"], watch=KEEPS_ALL), skewed(), FullBatch(2), [[0, 1, 2]] * 2))[2]
    parts = federated.setup.task.space.unravel(end)
    assert gap(layer[0], parts["2.bias"]) < 1e-14 and gap(layer[1:] - layer[0], parts["2.weight"].T) < 1e-14


def test_the_generator_learns_what_the_classifiers_agree_on():
    """Features of a class are scored as it by those clients that have it; before, by chance."""
    piece = FedGen(epochs=60, lr=0.01, hidden=16, noise=4, alpha=1.0, beta=1.0)
    ran = run(prepared(algorithm(piece, name="fedgen")), skewed(), FullBatch(5), [[0, 1, 2]] * 5, 0.3)
    completed = ran.clients.federated.setup.pieces[0]
    noise = torch.rand(90, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.arange(90) % 3

    def right(server: Any) -> float:
        weights, statistics = server.memory["FedGen"].generator
        z = completed.network.outputs(weights, (noise, y), statistics)
        return float((ran.clients.federated.setup.task.space.head(ran.last, z).argmax(1) == y).double().mean())

    assert right(ran.servers[0]) < 0.6 < 0.95 < right(ran.servers[-1])


def test_the_servers_draws_are_of_its_trainings_alone():
    """Whoever takes part: two runs with other cohorts train on the same numbers, each training on others."""
    pieces = [prepared(QUICK["fedgen"]).setup.pieces[0] for _ in range(2)]
    one, two = (piece.drawn(1) for piece in pieces)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["noise"], pieces[0].drawn(2)["noise"])
    space = prepared(QUICK["fedgen"]).setup.task.space
    other = replace(QUICK["fedgen"].pieces[0]).complete(space, SETTING._replace(seed=1), Sgd())
    assert not torch.equal(one["noise"], other.drawn(1)["noise"])
    ran = run(prepared(QUICK["fedgen"]), skewed(), FullBatch(1), [[0], [1, 2], [0, 1]], absent={1: {1, 2}})
    assert [int(s.memory["FedGen"].moments.steps) for s in ran.servers] == [0, 2, 2, 4]  # nobody answered: no training


def test_a_new_clients_share_is_the_global_model():
    for name, subject in QUICK.items():
        federated = prepared(subject)
        ran = run(federated, skewed(), FullBatch(1), [[0, 1]] * 2)
        clients = Clients(federated, skewed(), Work(1, None, 4), 0, Sequential())
        each, shared = clients.each(2, 2), federated.shared(ran.servers[-1], 0.1)
        theta = predicting(federated.setup, Loop(), ran.last, ran.servers[-1].buffers, shared, each)[0]
        assert torch.equal(theta, ran.last), name
        assert not ran.clients.fresh, name  # and nothing is stored on clients
