"""A module as a vector: groups of parameters, tied and frozen ones, and BatchNorm's statistics under every policy."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from support.helpers import KEEPS_ALL, by_torch, clusters, federate, gap, mlp, models, run
from support.modules import Normed, images
from torch import nn

from apiece.algebra.composition import Period, algorithm
from apiece.algebra.optim import Sgd
from apiece.algebra.periods import NEVER
from apiece.engine.work import Work
from apiece.errors import UserError
from apiece.language import algorithms as named
from apiece.lifts.lift import Sequential, Threaded, Vectorized
from apiece.vector.space import Space

SOME = [(0, 1, 2), (2, 3), (1, 4), (0, 3, 4)]
WORK = Work(2, None, 4)


class Tied(nn.Module):
    """Linear, tanh, and the transpose of the same weights; a second name for the first layer's bias."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(2)
            self.one, self.two, self.out = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.two.weight = self.one.weight
        self.two.bias.requires_grad_(False)
        self.register_buffer("shift", torch.ones(6))

    def forward(self, x):
        return self.out(torch.tanh(self.two(torch.tanh(self.one(x) + self.shift))))


# --- groups ---------------------------------------------------------------------------------------------------------
def names(space: Space, which) -> set[str]:
    mask = space.select(which)
    assert mask.dtype == torch.bool and mask.shape == (space.size,)
    chosen = {e.name for e in space.parameters if mask[e.offset]}
    assert all(len(set(mask[e.offset : e.offset + e.size].tolist())) == 1 for e in space.parameters)
    return chosen


def test_patterns():
    space, every = Space(Normed()), {"conv.weight", "conv.bias", "norm.weight", "norm.bias", "head.weight", "head.bias"}
    head = {"head.weight", "head.bias"}
    conv, body = {"conv.weight", "conv.bias"}, every - head
    cases = {None: head, "head": head, "body": body, "!head": body, "!body": head, "*": every, "conv": conv}
    cases |= {"*.bias": {"conv.bias", "norm.bias", "head.bias"}, "conv|norm.weight": conv | {"norm.weight"}}
    cases |= {"!conv": every - conv, 0: set(), 1: body, 2: every}
    for which, expected in cases.items():
        assert names(space, which) == expected, which
    assert names(space, lambda name: name.startswith("norm")) == {"norm.weight", "norm.bias"}
    assert space.layers == ["conv", "head"] and space.layer_index().tolist() == [0] * (57 + 6) + [1] * 39
    assert space.select_buffers("conv").all() and not space.select_buffers("head").any()
    for wrong in ("convolution", 3, "!nothing"):
        with pytest.raises(UserError, match="conv"):
            space.select(wrong)


class Filtered(nn.Module):
    """A fixed bank of filters [3, 2, 3, 3] in a buffer, before a trained layer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("bank", torch.randn(3, 2, 3, 3, generator=torch.Generator().manual_seed(0)))
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        return self.head(nn.functional.conv2d(x, self.bank).flatten(1))


def test_a_buffer_of_four_dimensions_that_no_call_changes_stays_as_it_is():
    space, x = Space(Filtered()), torch.randn(5, 2, 4, 4, generator=torch.Generator().manual_seed(1))
    theta, buffers = space.ravel(), space.ravel_buffers()
    assert torch.equal(space.training_outputs(theta, x, buffers)[1], buffers)
    assert torch.equal(space.state_dict(theta, buffers)["bank"], Filtered().bank)


def test_statistics_without_parameters_are_those_of_the_layer_before_them():
    parts = [nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, affine=False), nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, affine=False)]
    space = Space(nn.Sequential(*parts, nn.Flatten(), nn.Linear(16, 3)))
    first, second = (space.select_buffers(pattern).tolist() for pattern in ("0.*", "2.*"))
    assert first == [True] * 6 + [False] * 8 and second == [False] * 6 + [True] * 8


def test_a_convolution_lies_channels_last_and_comes_back():
    space, net = Space(Normed(), dtype=torch.float64), Normed().double()
    theta = space.ravel()
    assert torch.equal(theta[:54].view(3, 3, 3, 2).permute(0, 3, 1, 2), net.conv.weight)
    loaded = Normed().double()
    loaded.load_state_dict(space.state_dict(theta + 1, space.ravel_buffers() + 2))
    assert torch.equal(loaded.conv.weight, net.conv.weight + 1) and torch.equal(
        loaded.norm.running_var, net.norm.running_var + 2
    )
    back, buffers = space.from_state_dict(loaded.state_dict())
    assert torch.equal(back, theta + 1) and torch.equal(buffers, space.ravel_buffers() + 2)
    x = torch.randn(4, 2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    again = pickle.loads(pickle.dumps(space))
    assert gap(again.outputs(theta, x, space.ravel_buffers()), net.eval()(x).detach()) < 1e-14
    features = space.features(theta, x, space.ravel_buffers())
    assert gap(space.head(theta, features), net(x).detach()) < 1e-14
    with pytest.raises(UserError, match="does not fit"):
        space.from_state_dict(mlp().state_dict())


def test_an_empty_model_is_refused():
    with pytest.raises(UserError, match="no trainable parameter"):
        Space(nn.Sequential(nn.Tanh()))
    with pytest.raises(UserError, match="average, local, drop"):
        Space(mlp(), buffers="mean")


# --- training is torch's --------------------------------------------------------------------------------------------
def torchs(net: nn.Module, data, rounds: int) -> nn.Module:
    """One client trained by torch.optim."""
    net = copy.deepcopy(net).double().train()
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    for t in range(rounds):
        by_torch(net, optimizer, map(data.samples(0).batch, WORK.batches(0, t, "c0", data.size(0), 2)))
    return net


# modules catch statistics or tied weights that move otherwise, lifts a copy that does
@pytest.mark.parametrize("lift", [Sequential(), Threaded(2), Vectorized()], ids=lambda lift: type(lift).__name__)
@pytest.mark.parametrize("net", [Normed, Tied])
def test_one_client_is_torchs_loop(net, lift):
    """Tied weights move once, frozen ones never; BatchNorm's statistics move in training passes as torch's do."""
    data = images() if net is Normed else clusters((12,))
    ran = run(
        federate(named.fedavg(), net(), client=Sgd(0.9), optimizer_state="kept"), data, WORK, [[0]] * 3, lift=lift
    )
    space, server = ran.clients.federated.setup.task.space, ran.servers[-1]
    expected, ours = torchs(net(), data, 3).state_dict(), space.state_dict(server.params, server.buffers)
    assert max(gap(ours[k].double(), v.double()) for k, v in expected.items() if "num_batches" not in k) < 1e-13


def test_tied_and_frozen_parameters():
    space = Space(Tied())
    assert (
        space.size == 36 + 6 + 6 * 3 + 3 and space.buffer_size == 6
    )  # one weight of two layers; the frozen bias is a constant
    assert names(space, "one.weight") == names(space, "two.weight") == {"one.weight"}
    assert names(space, "one") == {"one.weight", "one.bias"} and names(space, "two") == {"one.weight"}
    with pytest.raises(UserError, match="matches no parameter"):
        space.select("two.bias")
    state = space.state_dict(space.ravel() + 1)
    assert torch.equal(state["one.weight"], state["two.weight"]) and torch.equal(state["two.bias"], Tied().two.bias)


# --- BatchNorm ------------------------------------------------------------------------------------------------------
SUBJECTS = [
    named.fedavg(),
    named.scaffold(),
    named.fedals(2),
    algorithm(Period("conv|norm", NEVER), Period("head", 2), name="norms stay"),
    named.scaffold() + named.fedals(2) + named.relaxed_init(),
]


# policies catch statistics kept in the wrong place, subjects those whose parameters wait or stay
@pytest.mark.parametrize("policy", ["average", "local", "drop"])
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda a: a.name)
def test_lifts_agree_with_statistics(subject, policy):
    """Threads bitwise; vectorized to 1e-10 in float64, the clients' own statistics included."""
    runs = [
        run(federate(subject, Normed(), buffers=policy, watch=KEEPS_ALL), images(), WORK, SOME, lift=lift)
        for lift in (Sequential(), Threaded(2), Vectorized(2))
    ]
    one, threads, vmap = runs
    assert torch.equal(one.last, threads.last) and torch.equal(one.servers[-1].buffers, threads.servers[-1].buffers)
    assert one.clients.rows.digest() == threads.clients.rows.digest()
    assert gap(one.last, vmap.last) < 1e-10
    for c in range(5):
        rows = one.clients.row(c)[0], vmap.clients.row(c)[0]
        assert all(not len(rows[0][k]) or gap(rows[0][k], rows[1][k]) < 1e-10 for k in rows[0])
    moved = not torch.equal(one.servers[-1].buffers, one.servers[0].buffers)
    assert moved == (policy == "average" and subject.name != "norms stay")
    assert ("buffers" in one.clients.fresh) == (policy == "local" or (policy == "average" and bool(subject.periods)))


def test_average_is_the_weighted_mean_of_the_clients_statistics():
    data = images()
    one = run(federate(named.fedavg(), Normed()), data, WORK, [(0, 1, 4)])
    own = [run(federate(named.fedavg(), Normed()), data, WORK, [(c,)]).servers[-1].buffers for c in (0, 1, 4)]
    weights = torch.tensor([12.0, 6.0, 8.0], dtype=torch.float64) / 26
    assert gap(one.servers[-1].buffers, sum(w * b for w, b in zip(weights, own, strict=True))) < 1e-14


def test_local_statistics_go_on_from_the_clients_own():
    """The parameters are averaged, the statistics never: client 0's are those it had, moved by its second round."""
    data = images()
    buffers = []
    ran = run(
        federate(named.fedavg(), Normed(), buffers="local"),
        data,
        WORK,
        [(0, 1), (1,), (0, 1)],
        after=lambda t, c: buffers.append(c.row(0)[0]["buffers"]),
    )
    assert torch.equal(buffers[0], buffers[1]) and not torch.equal(buffers[1], buffers[2])
    space, net = ran.clients.federated.setup.task.space, Normed().double().train()
    net.load_state_dict(space.state_dict(ran.servers[2].params, buffers[1]))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    by_torch(net, optimizer, map(data.samples(0).batch, WORK.batches(0, 2, "c0", data.size(0), 2)))
    assert gap(buffers[2], torch.cat([net.norm.running_mean, net.norm.running_var])) < 1e-13


def test_slow_statistics_follow_their_group():
    """FedALS: the body's statistics rest on the server between two synchronizations, and go on with their client."""
    ran = run(federate(named.fedals(2), Normed(), watch=KEEPS_ALL), images(), WORK, SOME)
    moved = [not torch.equal(a.buffers, b.buffers) for a, b in zip(ran.servers, ran.servers[1:], strict=False)]
    assert moved == [False, True, False, True] and models(ran).shape == (5, ran.last.numel())


def test_dropped_statistics_normalize_by_the_batch():
    space = Space(Normed(), buffers="drop", dtype=torch.float64)
    x = torch.randn(5, 2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert space.buffer_size == 0
    assert gap(space.outputs(space.ravel(), x, space.ravel_buffers()), Normed().double().train()(x).detach()) < 1e-14


# --- what is frozen -------------------------------------------------------------------------------------------------
def half_frozen() -> nn.Module:
    """Its head is all that it trains."""
    module = mlp()
    module[0].requires_grad_(False)
    return module


@pytest.mark.parametrize("name", ["fedavg_p", "scaffold_p", "fedper", "fedrep", "fedsim", "fedalt"])
def test_algorithms_under_which_nothing_would_be_sent_are_refused(name):
    says = "clients would send nothing: all that the model trains, 2.weight, 2.bias, is personal.*a pattern.*unfreeze"
    with pytest.raises(UserError, match=says):
        _ = federate(getattr(named, name)(), half_frozen()).setup.periods
    some = federate(getattr(named, name)("2.bias"), half_frozen()).setup.periods
    assert some.personal and not bool(some.never.all())


@pytest.mark.parametrize("subject", [named.fedals(5), named.lg_fedavg()], ids=lambda a: a.name)
def test_a_body_without_a_trained_parameter_is_refused(subject):
    with pytest.raises(UserError, match="'body' means no parameter: all that the model trains, 2.weight, 2.bias"):
        _ = federate(subject, half_frozen()).setup.periods


def test_what_is_all_personal_by_its_name_is_not_refused():
    assert bool(federate(named.local(), half_frozen()).setup.periods.never.all())
