"""Optimizers on vectors against torch's own, and the server's against their papers' equations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.helpers import by_torch, clusters, federate, gap, mlp, run

from apiece.algebra.optim import AdamW, Sgd, clip
from apiece.algebra.server_optim import Adagrad, Adam, Descent, Momentum, Yogi
from apiece.engine.work import Work
from apiece.errors import UserError
from apiece.language import algorithms as named
from apiece.language import optimizers
from apiece.language.schedules import Constant, Cosine, Exponential, Steps
from apiece.lifts.lift import Sequential, Vectorized

RNG = np.random.Generator(np.random.Philox(0))
SIZE, STEPS = 7, 12
GRADIENTS = torch.from_numpy(RNG.normal(size=(STEPS, SIZE)))
FIRST = torch.from_numpy(RNG.normal(size=SIZE))
PAIRS = {
    "sgd": (Sgd(), lambda p: torch.optim.SGD(p, lr=0.1)),
    "decay": (Sgd(weight_decay=0.1), lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1)),
    "momentum": (Sgd(0.9), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    "both": (Sgd(0.9, 0.1), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1)),
    "adamw": (AdamW(), lambda p: torch.optim.AdamW(p, lr=0.1)),
    "adamw, other values": (
        AdamW(0.8, 0.95, 1e-4, 0.3),
        lambda p: torch.optim.AdamW(p, lr=0.1, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.3),
    ),
    "adam": (AdamW(weight_decay=0.0), lambda p: torch.optim.Adam(p, lr=0.1)),
}


@pytest.mark.parametrize("ours, theirs", PAIRS.values(), ids=PAIRS)
def test_equals_torchs(ours, theirs):
    """On given gradients, the step size dropping half way."""
    theta, state, p = FIRST, ours.init(FIRST), torch.nn.Parameter(FIRST.clone())
    optimizer = theirs([p])
    for k, g in enumerate(GRADIENTS):
        lr = 0.1 if k < STEPS // 2 else 0.03
        optimizer.param_groups[0]["lr"] = lr
        p.grad = g.clone()
        optimizer.step()
        theta, state = ours.step(g, theta, state, lr)
        assert gap(theta, p.detach()) < 1e-13


# pairs catch a value misplaced in an equation, lifts a state that clients share
@pytest.mark.parametrize("ours, theirs", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("lift", [Sequential(), Vectorized()], ids=lambda lift: type(lift).__name__)
def test_a_client_is_torchs_loop(ours, theirs, lift):
    """One client of FedAvg is nn.Module, clip_grad_norm_ and torch.optim, state kept over rounds."""
    data, work, net = clusters((20,)), Work(4, None, 5), mlp().double()
    ran = run(
        federate(named.fedavg(), mlp(), client=ours, clip=0.5, optimizer_state="kept"), data, work, [[0]] * 3, 0.1, lift
    )
    optimizer = theirs(net.parameters())
    for t in range(3):
        for rows in work.batches(0, t, "c0", 20, 4):
            x, y = data.samples(0).batch(rows)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
    # torch's clip divides by norm + 1e-6, ours by the norm: a relative 1e-6 of each step, which Adam divides out again
    assert gap(ran.last, torch.nn.utils.parameters_to_vector(net.parameters()).detach()) < 1e-5


def test_a_fresh_state_is_torchs_optimizer_made_anew():
    data, work, net = clusters((20,)), Work(4, None, 5), mlp().double()
    ran = run(federate(named.fedavg(), mlp(), client=Sgd(0.9, 0.01)), data, work, [[0]] * 3)
    for t in range(3):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
        by_torch(net, optimizer, map(data.samples(0).batch, work.batches(0, t, "c0", 20, 4)))
    assert gap(ran.last, torch.nn.utils.parameters_to_vector(net.parameters()).detach()) < 1e-13


def test_the_clip_acts_on_the_tasks_gradient_and_on_no_correction():
    """theta - lr (clip(g) + mu (theta - start)), and not theta - lr clip(g + mu (theta - start))."""
    data, work, mu, bound = clusters((20,)), Work(4, None, 5), 3.0, 0.2
    ran = run(federate(named.fedprox(mu), mlp(), client=Sgd(), clip=bound), data, work, [[0]], 0.1)
    right, wrong = mlp().double(), mlp().double()
    for net, whole in ((right, False), (wrong, True)):
        start = [p.detach().clone() for p in net.parameters()]
        for rows in work.batches(0, 0, "c0", 20, 4):
            x, y = data.samples(0).batch(rows)
            net.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            pulls = [mu * (p.detach() - s) for p, s in zip(net.parameters(), start, strict=True)]
            g, pull = (torch.cat([v.flatten() for v in part]) for part in ([p.grad for p in net.parameters()], pulls))
            move = clip(g + pull, bound) if whole else clip(g, bound) + pull
            theta = torch.nn.utils.parameters_to_vector(net.parameters()).detach()
            torch.nn.utils.vector_to_parameters(theta - 0.1 * move, net.parameters())
    ends = [torch.nn.utils.parameters_to_vector(net.parameters()).detach() for net in (right, wrong)]
    assert gap(ran.last, ends[0]) < 1e-13 and gap(ran.last, ends[1]) > 1e-4


def test_clip_bounds_the_norm_and_leaves_short_ones():
    g = GRADIENTS[0]
    assert (
        math.isclose(float(clip(g, 0.5).norm()), 0.5, rel_tol=1e-12) and gap(clip(g, 0.5) / 0.5, g / g.norm()) < 1e-12
    )
    assert torch.equal(clip(g, 100.0), g) and torch.equal(clip(torch.zeros(3), 1.0), torch.zeros(3))


# --- the server's: Reddi et al. 2021, Algorithm 2, with g = -Delta; Hsu et al. 2019 ---------------------------------
def equations(kind: str, g: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """In NumPy, as the papers print them."""
    m, v = np.zeros_like(theta), np.full_like(theta, 1e-6)
    for step in g:
        if kind == "momentum":  # v <- beta v + Delta; x <- x + v
            m = 0.9 * m + step
            theta = theta - 0.5 * m
            continue
        b1 = 0.0 if kind == "adagrad" else 0.9
        m = b1 * m + (1 - b1) * step
        if kind == "adagrad":
            v = v + step**2
        if kind == "adam":
            v = 0.99 * v + 0.01 * step**2
        if kind == "yogi":
            v = v - 0.01 * step**2 * np.sign(v - step**2)
        theta = theta - 0.1 * m / (np.sqrt(v) + 1e-3)
    return theta


@pytest.mark.parametrize(
    "kind, optimizer",
    [
        ("momentum", Momentum(0.9, 0.5)),
        ("adam", Adam()),
        ("yogi", Yogi()),
        ("adagrad", Adagrad()),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_server_optimizers_are_their_equations(kind, optimizer):
    theta, state = FIRST, optimizer.init(FIRST)
    for g in GRADIENTS:
        theta, state = optimizer.step(g, theta, state)
    assert gap(theta, torch.from_numpy(equations(kind, GRADIENTS.numpy(), FIRST.numpy()))) < 1e-12


@pytest.mark.parametrize("name", ["adam", "yogi", "adagrad"])
def test_an_adaptive_server_has_one_definition(name):
    """--server adam is --algorithm fedadam, and both are the class as it stands."""
    by_option, by_name = optimizers.NAMED["server"][name](), getattr(named, f"fed{name}")().server
    assert by_option == by_name == type(by_name)()
    values = {"lr": 0.3, "beta1": 0.5, "tau": 0.1, "initial": 0.2}
    by_option, by_name = optimizers.NAMED["server"][name](**values), getattr(named, f"fed{name}")(**values).server
    assert by_option == by_name == type(by_name)(**values)


def test_descent_of_one_is_averaging():
    assert torch.equal(Descent().step(GRADIENTS[0], FIRST, ())[0], FIRST - GRADIENTS[0])


# --- step sizes over rounds -----------------------------------------------------------------------------------------
def test_schedules():
    assert [Constant()(t, 10) for t in (0, 9)] == [1.0, 1.0]
    assert Exponential(0.5)(3, 10) == 0.125 and Steps(4, 0.1)(3, 10) == 1.0 and math.isclose(Steps(4, 0.1)(8, 10), 0.01)
    assert Cosine()(0, 10) == 1.0 and math.isclose(Cosine()(5, 10), 0.5) and abs(Cosine()(10, 10)) < 1e-15
    assert math.isclose(Cosine(0.2)(10, 10), 0.2)
    with pytest.raises(UserError, match="every 0 rounds"):
        Steps(0)(1, 10)
