"""A round of local training: bare loops, apiece under each lift, and other simulators, on the same model, clients
and batches.

The bare loop is what people write: deepcopy of a module, torch.optim.SGD, F.cross_entropy, the mean of state dicts; the
faster of one and two intra-op threads counts. apiece draws its batches while the clock runs; all others find them
drawn. The images are noise: nothing is learned. Each peer runs in its own environment under `.peers/`, made at the
first run, and answers over a pipe. Every contender starts every round at the same weights, and must end it with the
same model. "compute" is the share of its workers' time that it spends in forward, loss, backward and step.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from best_effort import BestEffort
from loops import Floor, bare_round
from problem import MODELS, TRAINING, Given, Problem, Stopwatch, at, flat, read, write
from remotes import CORES, ENVIRONMENTS, PEERS, Remote
from timing import Contender, Goal, Work, cpu_of
from torch import Tensor, nn

from apiece.algebra.optim import Sgd
from apiece.data.federation import Federation
from apiece.engine.clients import Clients
from apiece.engine.federated import Federated
from apiece.engine.setup import Setup
from apiece.engine.state import Plan
from apiece.engine.work import Work as LocalWork
from apiece.experiment.choice import by_rule, compiled, vectorized
from apiece.language import algorithms
from apiece.lifts.lift import Sequential, Threaded
from apiece.lifts.workers import Processes
from apiece.networks import models
from apiece.vector.space import Space
from apiece.vector.task import Task

ALIKE, ALIKE_IN_BFLOAT16 = 1e-2, 0.2  # the largest distance between two models, as a share of the round's move
FLOOR = f"floor: products and gather, {CORES} threads"
OWN = {"lenet": models.lenet, "small_lenet": models.cnn_fedcog}  # apiece's own models, which pool before ReLU


class Set(NamedTuple):
    """A problem, the seconds for which it is measured by default, and its goals."""

    problem: Problem
    seconds: float
    goals: tuple[Goal, ...]


MNIST = {"channels": 1, "side": 28, "batch": 32, "lr": 1e-3}  # with more, one ReLU that flips is 3 % of the move
LIMIT = partial(Goal, "apiece", "best effort")
SETS = {
    "softmax regression": Set(
        Problem("softmax_regression", clients=1000, cohort=1000, samples=320, **MNIST),
        240,
        (Goal("apiece", "bare", 0.25),),
    ),
    "mlp": Set(Problem("mlp", clients=10, cohort=10, samples=1600, **MNIST), 60, (Goal("apiece", "bare", 1.1),)),
    "lenet": Set(
        Problem("lenet", clients=100, cohort=10, samples=1600, **MNIST),
        260,
        (Goal("apiece", "bare", 0.4), LIMIT(1.05)),
    ),
    "small lenet": Set(
        Problem("small_lenet", clients=10, cohort=10, samples=1600, **MNIST), 120, (Goal("apiece", "bare", 1.1),)
    ),
    "pfl": Set(
        Problem("simple_cnn", 3, 32, clients=1000, cohort=50, samples=50, batch=10, lr=0.1),
        420,
        (
            LIMIT(1.1),
            *(Goal("apiece", who, 0.5) for who in PEERS if who.startswith("pfl")),
            *(Goal("apiece", who, 0.05) for who in PEERS if who.startswith("flwr")),
        ),
    ),
}


class Entry(NamedTuple):
    """One contender: how to time it, how to get its model [D] and its share of compute, and how far from the bare
    loop's its model may be.
    """

    contender: Contender
    check: Callable[[], Shown]
    alike: float = ALIKE


class Shown(NamedTuple):
    """What a contender has shown of a round: its model [D], the share of its workers' time in which they computed, and
    the number of gradients they took; None if neither can be seen from outside.
    """

    model: Tensor
    share: float | None
    steps: int | None


def make(problem: Problem) -> Given:
    """Noise for every client, and torch's or the model's own initial weights."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    shape = (problem.clients, problem.samples)
    x = rng.standard_normal((*shape, problem.channels, problem.side, problem.side), dtype=np.float32)
    module = MODELS[problem.model](problem.channels, problem.side, problem.classes)
    return Given(problem, x, rng.integers(problem.classes, size=shape), flat(module.parameters()))


def own(given: Given) -> nn.Module:
    """The given network in the form that apiece's users have: its own model if there is one, at the same weights."""
    problem = given.problem
    if problem.model not in OWN:
        return given.module()
    shape = (problem.channels, problem.side, problem.side)
    return at(OWN[problem.model](shape, problem.classes), given.initial)


def watched(contender: Contender) -> Shown:
    """A second round of the contender, instrumented."""
    contender.round()
    with Stopwatch().on(*TRAINING, (Sgd, "step")) as watch:
        began = time.perf_counter()
        made = contender.round()
        wall = time.perf_counter() - began
    return Shown(made, sum(watch.seconds) / (wall * (contender.cores // contender.threads)), watch.steps())


def loops(given: Given) -> dict[str, Entry]:
    """The bare loop as people write it, and as good as its author can make it."""
    problem, module = given.problem, own(given)
    data = [given.client(number) for number in range(problem.cohort)]
    batches = [torch.arange(problem.samples).split(problem.batch)] * problem.cohort
    bare = lambda of: lambda: flat(bare_round(of, data, batches, problem.lr).values())
    best = {threads: BestEffort(module, problem.lr, threads) for threads in (1, CORES)}
    out = {"bare": Contender(bare(given.module()), 1, 1)}
    out[f"bare, {CORES} threads"] = Contender(bare(given.module()), CORES, CORES)
    if problem.model in OWN:
        out["pooled first, bare"] = Contender(bare(module), 1, 1)
        out[f"pooled first, bare, {CORES} threads"] = Contender(bare(module), CORES, CORES)
    out["best effort, 1 thread"] = Contender(lambda: best[1].round(data, batches), 1, 1)
    out[f"best effort, {CORES} threads"] = Contender(lambda: best[CORES].round(data, batches), 1, CORES)
    return {name: Entry(one, lambda one=one: watched(one)) for name, one in out.items()}


def lifts(given: Given) -> dict[str, Entry]:
    """apiece under each lift."""
    problem, module, each = given.problem, own(given), given.problem.samples
    work, names = LocalWork(None, 1, problem.batch), [f"client-{number:04d}" for number in range(problem.clients)]
    x, y = (torch.from_numpy(array).flatten(0, 1) for array in (given.x, given.y))
    # a client's samples lie in the order in which apiece will take them in its first round
    orders = [torch.cat(tuple(work.batches(0, 0, name, each, -(-each // work.batch)))) for name in names]
    rows = [number * each + order.argsort() for number, order in enumerate(orders)]
    federation, space = Federation((x, y), (x[:1], y[:1]), rows, rows, names), Space(module)
    federated = Federated(Setup(algorithms.fedavg(), Task(space, draws=False), space.ravel(), space.ravel_buffers()))
    server, plan = federated.start(), Plan(list(range(problem.cohort)), frozenset(), problem.lr)
    chosen = type(by_rule(space, "cpu", problem.cohort, CORES))

    def plain(vector: Tensor) -> Tensor:
        state = space.state_dict(vector)
        return flat(state[name] for name, _ in module.named_parameters())

    def entry(lift: Any, cores: int, subject: Federated = federated, alike: float = ALIKE) -> Entry:
        clients = Clients(subject, federation, work, 0, lift)
        pids = lift.pids if isinstance(lift, Processes) else list
        new = lambda: plain(subject.round(server, clients, plan)[0].params)
        one = Contender(new, 1, cores, lambda: sum(map(cpu_of, pids())))
        seen = isinstance(lift, Sequential) or type(lift) is Threaded
        return Entry(one, lambda: watched(one) if seen else Shown(new(), None, None), alike)

    out = {}
    together = [of(space, "cpu", problem.cohort, CORES) for of in (vectorized, compiled)]
    for lift, cores in ((Sequential(), 1), *((lift, CORES) for lift in (Threaded(CORES), Processes(CORES), *together))):
        name = f"apiece, {type(lift).__name__.lower()}" + (" (auto)" if type(lift) is chosen else "")
        out[name] = entry(lift, cores)
    if problem.model == "lenet":  # what `--precision bfloat16` gives: another model, within its rounding
        half = Federated(replace(federated.setup, task=Task(Space(module, autocast=torch.bfloat16), draws=False)))
        out["in bfloat16: apiece, threaded"] = entry(Threaded(CORES), CORES, half, ALIKE_IN_BFLOAT16)
    return out


def floor(given: Given) -> dict[str, Contender]:
    """The floor of a softmax regression."""
    problem = given.problem
    if problem.model != "softmax_regression":
        return {}
    pool = torch.from_numpy(given.x).reshape(-1, problem.channels * problem.side**2)
    places = torch.arange(problem.cohort * problem.samples).reshape(problem.cohort, -1, problem.batch)
    weights = next(given.module().parameters()).detach()
    return {FLOOR: Contender(Floor(pool, weights, places, 128, CORES).round, 1, CORES)}


@contextlib.contextmanager
def remotes(folder: Path, wanted: list[str]) -> Iterator[tuple[dict[str, Entry], list[str]]]:
    """The peers that can be started, with messages: their versions, or why one cannot start."""
    out, said, begun = {}, [], []
    try:
        for name, peer in PEERS.items():
            if peer.environment not in wanted:
                continue
            try:
                remote = Remote(peer, folder, ENVIRONMENTS / f"{name}.log")
            except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
                said.append(f"{name} could not be started: {error}")
                continue
            begun.append(remote)
            out[name] = Entry(
                Contender(remote.round, peer.threads, peer.cores, remote.cpu), lambda r=remote: Shown(*r.check())
            )
            said.append(f"{name}: " + ", ".join(f"{what} {which}" for what, which in remote.versions.items()))
        yield out, said
    finally:
        for remote in begun:
            remote.end()


def checked(entries: dict[str, Entry], given: Given) -> tuple[dict[str, str], list[str]]:
    """Each contender's share of compute, if it makes the bare loop's model in as many steps; and those that do not."""
    shares, wrong, bare = {}, [], given.initial
    for name, entry in entries.items():
        torch.set_num_threads(entry.contender.threads)
        shown = entry.check()
        bare = shown.model if name == "bare" else bare
        away = float((shown.model - bare).norm() / (bare - given.initial).norm())
        if away > entry.alike or shown.steps not in (None, given.problem.steps):
            wrong.append(
                f"{name} is left out: {shown.steps} steps, its model {away:.1e} of the way from the bare loop's"
            )
            continue
        shares[name] = "" if shown.share is None else f"computes {shown.share:.0%}"
        print(f"{name}: model {away:.1e} of the way from the bare loop's", file=sys.stderr)
    return shares, wrong


@contextlib.contextmanager
def work(of: Set, options: argparse.Namespace) -> Iterator[Work]:
    """All contenders of this training, once each has made the same model; a little of it if `small` is asked for."""
    problem = of.problem._replace(clients=10, cohort=4) if options.small else of.problem
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write(folder, make(problem))
        given = read(folder)
        with remotes(folder, options.peers) as (peers, said):
            entries = loops(given) | lifts(given) | peers
            shares, wrong = checked(entries, given)
            timed = {name: entries[name].contender for name in shares} | floor(given)
            yield Work(timed, "bare", "best effort", of.goals, lambda walls: shares, lambda rows: said + wrong)
