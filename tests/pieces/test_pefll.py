"""PeFLL and pFedHN: both networks' gradients, what is frozen and saved, what crosses, how a newcomer is served."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from support.helpers import clusters, federate, gap, run
from support.outer import cli
from support.wired import CONFIG, PIPELINES, same, sequential
from torch import nn

import apiece
from apiece import Federation
from apiece.algebra.broadcast import FederationFacts
from apiece.algebra.composition import Server, algorithm
from apiece.algebra.generators import Affine
from apiece.algebra.optim import AdamW, OnServer, Sgd
from apiece.algebra.server_optim import Descent
from apiece.config.assemble import assemble
from apiece.config.settings import Config
from apiece.data.sources import load
from apiece.engine.clients import Place
from apiece.engine.predicting import predictor
from apiece.engine.stepping import Loop
from apiece.engine.work import Work
from apiece.errors import UserError
from apiece.experiment.launch import run_config
from apiece.experiment.newcomer import newcomer as newcomer_of
from apiece.experiment.personalize import personalize
from apiece.language import algorithms as named
from apiece.lifts.lift import Sequential, Threaded, Vectorized
from apiece.networks.hypernetwork import Hypernetwork
from apiece.pieces.pefll import SIZES, Pefll, descriptor_size
from apiece.pieces.pfedhn import Pfedhn

SHAPE, CLASSES = (1, 8, 8), 3
WORK, COHORT = Work(3, None, 4), (0, 2, 3, 4)


def images() -> Any:
    return clusters(shape=SHAPE, classes=CLASSES)


def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.Tanh(), nn.Linear(4, CLASSES))


def bound(recipe: Any, **settings: Any) -> Any:
    setting = FederationFacts(SHAPE, CLASSES, [f"c{i}" for i in range(5)], range(5), 0)
    return federate(algorithm(recipe, Server(Descent()), name="it"), net(), setting=setting, **settings)


def joint(federated: Any, data: Any, ran: Any, who: list[int], weights: list[float]) -> torch.Tensor:
    """The gradient of sum_i w_i <stopgrad(delta_i), theta_i(params)> by autograd through both networks at once."""
    b, params = federated.setup.broadcast, ran.servers[0].params.clone().requires_grad_()
    memory, total = ran.servers[1].broadcast, torch.zeros(())
    for c, w in zip(who, weights, strict=True):
        described = data.samples(c).batch(WORK.described(0, 0, data.names[c], data.size(c)))
        phi, eta = params[: b.split], params[b.split :]
        theta = b.generate(eta, (b.embed(phi, described) - memory.mean) / memory.deviation)
        total = total + w * ran.answers[0].rows[c].delta.x @ theta
    return torch.autograd.grad(total, params)[0]


# embeddings catch a layer without its gradient, lifts an answer that meets another client
@pytest.mark.parametrize("lift", [Sequential(), Threaded(2), Vectorized(2)], ids=lambda lift: type(lift).__name__)
@pytest.mark.parametrize("embedding", ["linear", "mlp", "cnn"])
def test_the_protocol_is_the_joint_gradient_of_the_surrogate(embedding, lift):
    data, federated = images(), bound(Pefll(embedding), weighting="uniform")
    ran = run(federated, data, WORK, [COHORT], 0.2, lift, absent={0: {3}})
    g = joint(federated, data, ran, [0, 2, 4], [1 / 3] * 3)
    assert gap(ran.servers[0].params - ran.last, g) < 1e-12 and g[: federated.setup.broadcast.split].abs().max() > 1e-6


def test_who_misses_the_last_phase_is_absent(monkeypatch):
    data, federated = images(), bound(Pefll("mlp"))
    there = Place.map
    monkeypatch.setattr(
        Place,
        "map",
        lambda self, name, *rest: there(
            replace(self, absent=frozenset({2})) if name == "embed_back" else self, name, *rest
        ),
    )
    ran = run(federated, data, WORK, [COHORT], 0.2)
    share = np.array([data.size(c) for c in (0, 3, 4)]) / sum(data.size(c) for c in (0, 3, 4))
    assert gap(ran.servers[0].params - ran.last, joint(federated, data, ran, [0, 3, 4], list(share))) < 1e-12


def test_the_first_descriptor_is_frozen():
    data, federated = images(), bound(Pefll("cnn"))
    ran = run(federated, data, WORK, [(2, 3), (0, 1, 4)], 0.2)
    rows = WORK.described(0, 0, "c2", data.size(2))
    split = federated.setup.broadcast.split
    e = federated.setup.broadcast.embed(ran.servers[0].params[:split], data.samples(2).batch(rows))
    assert ran.servers[0].broadcast == Affine(torch.zeros(()), torch.zeros(()))
    assert gap(ran.servers[1].broadcast.mean, e.mean()) == 0 and gap(ran.servers[1].broadcast.deviation, e.std()) == 0
    assert ran.servers[2].broadcast == ran.servers[1].broadcast


def test_the_descriptor_is_a_mean_over_all_data(monkeypatch):
    data, federated = images(), bound(Pefll("cnn"))
    params = federated.start().params
    each = run(federated, data, WORK, [], 0.1).clients.each(2, 0)
    whole = federated.setup.broadcast.embed(params[: federated.setup.broadcast.split], each.samples.all())
    monkeypatch.setattr("apiece.algebra.generators.CHUNK", 7)
    assert gap(federated.setup.broadcast.describe(params, each), whole) < 1e-14
    empty = each._replace(samples=each.samples._replace(index=each.samples.index[:0], size=0))
    assert torch.isfinite(
        federated.setup.broadcast.model(params, federated.setup.broadcast.memory(params), empty)
    ).all()


@pytest.mark.parametrize("size, hidden", SIZES.items())
def test_hypernetworks(size, hidden):
    """FC1 and so many more layers of 100; ReLUs between these, none before the last, one of which each tensor has."""
    federated = bound(Pefll("linear", size))
    names = federated.setup.broadcast.state(federated.start().params, ())
    kinds = [type(layer).__name__ for layer in Hypernetwork(2, [5, 3], hidden).trunk]
    assert kinds == ["Linear", *["ReLU", "Linear"] * hidden]
    heads = [names[f"hypernetwork.heads.{i}.weight"].shape for i in range(4)]
    assert heads == [(256, 100), (4, 100), (12, 100), (3, 100)] and names["embedding.weight"].shape == (2, CLASSES)
    assert [descriptor_size(n) for n in (1, 4, 5, 100)] == [1, 2, 2, 26]


def test_one_entry_has_no_deviation():
    """Four clients or fewer have a descriptor of one or two entries: one has no deviation, and is shifted alone."""
    setting = FederationFacts(SHAPE, CLASSES, ["c0", "c1", "c2"], range(3), 0)
    federated = federate(algorithm(Pefll("mlp"), name="it"), net(), setting=setting)
    ran = run(federated, images(), WORK, [(0, 1, 2)] * 2, 0.1)
    assert torch.isfinite(ran.last).all() and float(ran.servers[1].broadcast.deviation) == 1.0


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_the_servers_optimizers_are_torchs(decay):
    rng = np.random.Generator(np.random.Philox(0))
    start, gradients = (
        torch.from_numpy(rng.normal(size=9)),
        [torch.from_numpy(rng.normal(size=9) * s) for s in (1, 5, 0.1)],
    )
    pairs = [
        (OnServer(AdamW(weight_decay=decay), 2e-2, 1.5), lambda p: torch.optim.AdamW(p, 2e-2, weight_decay=decay)),
        (OnServer(Sgd(0.9, decay), 2e-2, 1.5), lambda p: torch.optim.SGD(p, 2e-2, momentum=0.9, weight_decay=decay)),
    ]
    for ours, torchs in pairs:
        leaf, theta, state = nn.Parameter(start.clone()), start, ours.init(start)
        optimizer = torchs([leaf])
        for g in gradients:
            leaf.grad = g.clone()
            nn.utils.clip_grad_norm_([leaf], 1.5)
            optimizer.step()
            theta, state = ours.step(g, theta, state)
        assert gap(theta, leaf.detach()) < 1e-6  # torch's clip adds 1e-6 to the norm


# --- runs -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", PIPELINES)
def test_wired_is_bitwise_sequential(name):
    config = replace(CONFIG, algorithm=name, unseen=1, cohort=0.8)
    result = run_config(config)[0]
    assert same(result, sequential(config)) and "global_accuracy" not in result.metrics[-1]
    assert {"personal_accuracy_mean", "unseen_accuracy", "adapted_accuracy"} <= set(result.metrics[-1])


DIGITS = Config(clients=10, unseen=2.0, rounds=25, steps="20", lr=0.05, model="mlp(hidden=[32])", eval_every=25,
    weighting="uniform", lift="sequential", checkpoint_every=25)  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Any]:
    home, names = tmp_path_factory.mktemp("runs"), ["fedavg", "pefll(lr=0.002)", "pfedhn(lr=0.1)", "fedper"]
    return {name: run_config(replace(DIGITS, algorithm=name, out=str(home / name[:5])))[0] for name in names}


@pytest.mark.slow
def test_digits_are_learned(runs):
    """Dirichlet(0.1): the mean of the clients' own accuracies, without a step on any client; seen and unseen ones."""
    for name in ("pefll(lr=0.002)", "pfedhn(lr=0.1)"):
        assert runs[name].metrics[-1]["personal_accuracy_mean"] > 0.92
    config, last = replace(DIGITS, clients=20, rounds=12, eval_every=12), {}
    for name, lr in (
        ("fedavg", 0.05),
        ("fedavg", 0.1),
        ("pefll(lr=0.002)", 0.05),
        ("pefll(embedding=mlp, lr=0.002)", 0.05),
    ):
        last[name, lr] = run_config(replace(config, algorithm=name, lr=lr))[0].metrics[-1]
    one, own = ([m for (name, _), m in last.items() if name.startswith(kind)] for kind in ("fedavg", "pefll"))
    for key, margin in (("personal_accuracy_mean", 0.01), ("unseen_accuracy", 0.05)):
        assert min(m[key] for m in own) > max(m[key] for m in one) + margin


@pytest.mark.slow
def test_what_crosses(runs):
    """PeFLL, each client and round: down phi, theta, d v; up v, delta, d phi. pFedHN: theta down, delta up."""
    for name, each in (("pefll(lr=0.002)", lambda phi, v, d: phi + d + v), ("pfedhn(lr=0.1)", lambda phi, v, d: d)):
        result = runs[name]
        broadcast, count = result.experiment.federated.setup.broadcast, 8 * 25
        size = each(
            getattr(broadcast, "split", 0), descriptor_size(10), result.experiment.federated.setup.task.space.size
        )
        assert result.metrics[-1]["numbers_up"] == result.metrics[-1]["numbers_down"] == count * size


@pytest.mark.slow
def test_what_is_saved(runs):
    """The networks by name, and the normalization with them: all that a client needs to be served."""
    result = runs["pefll(lr=0.002)"]
    saved = safetensors.torch.load_file(result.folder / "model.safetensors")
    assert {"normalize.mean", "normalize.deviation", "embedding.head.weight", "hypernetwork.heads.3.bias"} <= set(saved)
    assert float(saved["normalize.deviation"]) == float(result.server.broadcast.deviation) > 0
    table = safetensors.torch.load_file(runs["pfedhn(lr=0.1)"].folder / "model.safetensors")["descriptors"]
    assert table.shape == (8, descriptor_size(10))
    client = result.model(3)
    result.experiment.module.load_state_dict(client)
    drift = {
        k for k in result.metrics[-1] if k in ("divergence_selected", "divergence_all", "consensus", "update_norm_mean")
    }
    assert drift == {"consensus", "update_norm_mean"} and min(result.metrics[-1]["consensus"].values()) > 0


@pytest.mark.slow
def test_a_client_without_a_row_has_the_mean_descriptors_model(runs):
    result = runs["pfedhn(lr=0.1)"]
    b, params = result.experiment.federated.setup.broadcast, result.server.params
    table, eta = b.split(params)
    unseen, seen = result.experiment.federation.unseen[0], result.experiment.federation.participants
    assert gap(b.model(params, (), result.clients.each(unseen, 25)), b.generate(eta, table.mean(0))) == 0
    order = sorted(seen, key=result.experiment.federation.names.__getitem__)
    assert gap(b.model(params, (), result.clients.each(order[2], 25)), b.generate(eta, table[2])) == 0


def test_a_mask_leaves_present_classes_alone():
    experiment = assemble(replace(DIGITS, algorithm="fedavg + class_mask", split="classes(2)"))
    federated = experiment.federated
    clients = run(federated, experiment.training, experiment.work, [], 0.1).clients
    each, server = clients.each(0, 0), federated.start()
    x, y = experiment.federation.test_pool
    scores = predictor(federated.setup, Loop(), server.params, server.buffers, federated.shared(server, 0.1), each)(x)
    plain = federated.setup.task.space.outputs(server.params, x, server.buffers)
    known = each.samples.all()[1].unique()
    assert set(scores.argmax(-1).tolist()) <= set(known.tolist()) and len(known) == 2
    assert torch.equal(scores[:, known], plain[:, known]) and torch.isinf(scores).sum() == 8 * len(scores)


# the others catch a part, a slot or an order in which one is taken
@pytest.mark.parametrize(
    "other", [named.fedals(2), named.fedper(), named.feddyn(), named.scaffold()], ids=lambda a: a.name
)
@pytest.mark.parametrize("one", [named.pefll(), named.pfedhn()], ids=lambda a: a.name)
def test_what_needs_a_global_model_is_refused(one, other):
    for both in (lambda: one + other, lambda: other + one):
        with pytest.raises(UserError, match="cannot be composed"):
            both()


@pytest.mark.parametrize("embedding", ["linear", "cnn"])
def test_several_labels_a_sample(embedding):
    """Each label has a channel; what needs one class a sample says so."""
    x, y = torch.randn(24, *SHAPE), (torch.rand(24, 5) < 0.4).float()
    rows = [torch.arange(8 * i, 8 * i + 8) for i in range(3)]
    place = Federation((x, y), (x, y), rows, rows, ["a", "b", "c"])
    settings: Any = dict(
        clients=place, rounds=1, steps=1, batch=4, loss=nn.functional.binary_cross_entropy_with_logits,
        metric=lambda outputs, labels: ((outputs > 0) == (labels > 0)).float().mean(1),
    )  # fmt: skip
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 5))
    result = apiece.federate(model, algorithm=f"pefll(embedding={embedding})", **settings)
    setting = result.experiment.federated.setup.setting
    assert setting is not None and setting.classes == 5
    for name in ("class_mask", "knn_per"):
        with pytest.raises(UserError, match=f"{name} .* labels must be classes, one a sample"):
            apiece.federate(model, algorithm=name, **settings)


def test_a_convolution_of_what_is_no_image_is_refused():
    with pytest.raises(UserError, match="embedding=cnn is for images"):
        federate(
            algorithm(Pefll("cnn"), name="it"), nn.Linear(6, 3), setting=FederationFacts((6,), 3, ["a"], [0], 0)
        ).start()
    assert repr(Pfedhn()) == repr(named.pfedhn().broadcast)


# --- apiece personalize ------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def newcomer(tmp_path_factory) -> Any:
    """A client of sixes and sevens."""
    digits, path = load("digits"), tmp_path_factory.mktemp("data") / "new-client.npz"
    train, test = (np.flatnonzero(np.isin(y, (6, 7))) for y in (digits.y_train, digits.y_test))
    np.savez(
        path,
        x_train=digits.x_train[train[:40]],
        y_train=digits.y_train[train[:40]],
        x_test=digits.x_test[test],
        y_test=digits.y_test[test],
    )
    return path


@pytest.mark.slow
def test_pefll_serves_by_one_forward_pass(runs, newcomer, tmp_path):
    result = runs["pefll(lr=0.002)"]
    words = result.folder, "--data", newcomer, "--out", tmp_path / "model.safetensors"
    said = cli("personalize", *words).out
    assert "one forward pass" in said and " 0 local gradients" in said and "test samples" in said
    served = personalize(result.folder, newcomer)
    b, space = result.experiment.federated.setup.broadcast, result.experiment.federated.setup.task.space
    assert (served.up, served.down, served.steps) == (descriptor_size(10), b.split + space.size, 0)
    state = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(state[k], v) for k, v in served.state.items())
    result.experiment.module.load_state_dict(state)
    assert served.accuracy is not None and served.accuracy > 0.7


@pytest.mark.slow
def test_pfedhn_serves_by_a_new_descriptor(runs, newcomer):
    result = runs["pfedhn(lr=0.1)"]
    served, size = personalize(result.folder, newcomer), result.experiment.federated.setup.task.space.size
    assert (served.up, served.down, served.steps) == (20 * size, 21 * size, 20 * 20) and "new descriptor" in served.way
    assert all(
        torch.equal(a, b) for a, b in zip(personalize(result.folder, newcomer).state.values(), served.state.values())
    )
    zero_shot = result.experiment.federated.setup.broadcast.split(result.server.params)[0].mean(0)
    assert served.accuracy is not None and served.accuracy > 0.7 and len(zero_shot) == descriptor_size(10)


@pytest.mark.slow
def test_others_serve_in_their_own_way(runs, newcomer):
    for name, way, steps in (("fedavg", "the global model", 0), ("fedper", "Newcomer", None)):
        result = runs[name]
        served = personalize(result.folder, newcomer)
        assert way in served.way and (served.steps == steps if steps is not None else served.steps > 0)
        assert served.up == 0
    longer = personalize(runs["fedavg"].folder, newcomer, steps=30)
    assert longer.steps == 30 and longer.accuracy is not None and longer.accuracy > 0.9
    assert all(
        torch.equal(a, b)
        for a, b in zip(personalize(runs["fedavg"].folder, newcomer).state.values(), runs["fedavg"].model().values())
    )


@pytest.mark.slow
def test_samples_that_do_not_fit_are_refused(runs, tmp_path):
    folder = runs["fedavg"].folder
    x = np.zeros((3, 8, 8), dtype=np.uint8)
    wrong = {
        "y_train": dict(x_train=x),
        "has x_train, y_train, x_test: give": dict(x_train=x, y_train=np.zeros(3, int), x_test=x),
        "samples of shape": dict(x_train=x[:, :4], y_train=np.zeros(3, int)),
        "11 is no known label": dict(x_train=x, y_train=np.full(3, 11)),
        "2 labels": dict(x_train=x, y_train=np.zeros(2, int)),
        "'a' is no known label": dict(x_train=x, y_train=np.full(3, "a")),
        "fractions": dict(x_train=x, y_train=np.full(3, 0.5)),
        "the labels are 3": dict(x_train=x, y_train=np.int64(3)),
        r"the shape \[3, 10\]": dict(x_train=x, y_train=np.eye(10)[:3]),
        "one array": dict(x_train=np.full((3, 8, 8), "a"), y_train=np.zeros(3, int)),
        "NaN": dict(x_train=np.full((3, 8, 8), np.nan), y_train=np.zeros(3, int)),
        "from 0 to 255": dict(x_train=np.linspace(0, 255, 192).reshape(3, 8, 8), y_train=np.zeros(3, int)),
    }
    for words, arrays in wrong.items():
        np.savez(tmp_path / "new.npz", **arrays)
        with pytest.raises(UserError, match=words):
            personalize(folder, tmp_path / "new.npz")
    with pytest.raises(UserError, match="no run folder"):
        personalize(tmp_path, tmp_path / "new.npz")


@pytest.mark.slow
def test_a_newcomers_labels_have_the_names_of_the_runs(tmp_path):
    """And its images their scale: levels, or the same from 0 to 1."""
    rng = np.random.Generator(np.random.Philox(0))
    x, y = rng.integers(0, 256, (60, 4, 4), dtype=np.uint8), np.array(["cat", "dog"] * 30)
    np.savez(tmp_path / "run.npz", x_train=x, y_train=y)
    quick = replace(DIGITS, clients=2, unseen=0.0, rounds=1, steps="1", split="iid", out=str(tmp_path / "run"))
    result = run_config(replace(quick, data=str(tmp_path / "run.npz")))[0]
    read = []
    for images in (x[:3], x[:3] / 255):
        np.savez(tmp_path / "new.npz", x_train=images, y_train=["dog", "cat", "dog"])
        read.append(newcomer_of(result.experiment, tmp_path / "new.npz").pool)
    assert all(labels.tolist() == [1, 0, 1] for _, labels in read) and gap(read[0][0], read[1][0]) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ditto", "apfl"])
def test_a_second_model_trains_nobody_new(name, newcomer, tmp_path):
    """It is a member's alone: personal parameters beside it still get a round's steps, and nothing else is told."""
    short = replace(DIGITS, clients=4, rounds=1, steps="3", checkpoint_every=1)
    for text, way, steps in (
        (name, "the global model", 0),
        (f"{name} + fine_tune(steps=2)", "the global model, trained on by FineTune", 2),
        (f"fedavg_p + {name}", "the shared parameters, and the initial ones for its own, then 3 local steps", 3),
    ):
        folder = tmp_path / text
        run_config(replace(short, algorithm=text, out=str(folder)))
        served = personalize(folder, newcomer)
        assert (served.way, served.steps) == (way, steps)
