"""What the engine itself costs: a client that does nothing, and the evaluation of a thousand clients' own models.

A no-op client runs the identity, on a model of 62,000 numbers, with no data and no memory: a thousand of a thousand
clients on one thread, so that only asking, answering and summing are timed. The evaluation is of a thousand LeNets,
each on its own ten test samples. It is compared with one pass of one LeNet over all ten thousand samples, and with the
barest loop over a thousand LeNets, the limit for one pass per model.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from timing import Contender, Goal, Row, Work, within
from torch import Tensor, nn

from apiece.algebra.message import Uniform
from apiece.data.federation import Federation
from apiece.engine import row
from apiece.engine.clients import Clients
from apiece.engine.federated import Federated
from apiece.engine.setup import Setup
from apiece.engine.state import Reply
from apiece.engine.work import Work as LocalWork
from apiece.experiment.choice import by_rule
from apiece.language import algorithms
from apiece.lifts.lift import Sequential
from apiece.measure.evaluate import Evaluation, Panel
from apiece.networks import models
from apiece.vector.space import Space
from apiece.vector.task import Task

CLIENTS, TESTED, SHAPE, CLASSES = 1000, 10, (1, 28, 28), 10
NOOP, EVALUATION = 0.1, 3.0  # ms per client; times the pooled pass: that pass itself, and twice its time besides


class Idle(LocalWork):
    """One step without samples."""

    def count(self, *of: Any) -> int:
        return 1

    def batches(self, *of: Any) -> tuple:
        return ()


def identity(stepping: Any, shared: Any, client: Any) -> Reply:
    """An operation that returns what was sent."""
    return Reply(Uniform(shared.model), (), {}, True)


@contextlib.contextmanager
def noop(options: argparse.Namespace) -> Iterator[Work]:
    """A round of the identity."""
    torch.manual_seed(0)
    space = Space(nn.Linear(620, 100, bias=False))
    nothing, empty = (torch.zeros(0, 620), torch.zeros(0, dtype=torch.int64)), [torch.arange(0)] * CLIENTS
    federation = Federation(nothing, nothing, empty, empty, [f"client-{i:04d}" for i in range(CLIENTS)])
    federated = Federated(Setup(algorithms.fedavg(), Task(space, draws=False), space.ravel(), space.ravel_buffers()))
    clients, shared = Clients(federated, federation, Idle(), 0, Sequential()), federated.shared(federated.start(), 0.1)
    clients.operations["identity"] = identity

    def said(rows: list[Row]) -> list[str]:
        ms, least, most = (1000 * seconds / CLIENTS for seconds in (rows[0].wall, rows[0].low, rows[0].high))
        return [within(f"a no-op client takes {ms:.3f} ms ({least:.3f}-{most:.3f})", ms, NOOP, rows)]

    idle = partial(clients.at(range(CLIENTS), frozenset(), 0).map, "identity", shared)
    idle()
    yield Work({"1,000 clients": Contender(idle, 1, 1)}, "1,000", said=said)


def evaluation_on_the_cpu(options: argparse.Namespace) -> contextlib.AbstractContextManager[Work]:
    """The evaluation, wherever else there is a GPU."""
    return evaluation(argparse.Namespace(**vars(options) | {"device": "cpu"}))


@contextlib.contextmanager
def evaluation(options: argparse.Namespace) -> Iterator[Work]:
    """One model over all test samples and every client's own model over its own, and the former alone."""
    torch.manual_seed(0)
    device = options.device
    test = torch.rand(CLIENTS * TESTED, *SHAPE), torch.randint(CLASSES, (CLIENTS * TESTED,))
    rows, names = list(torch.arange(CLIENTS * TESTED).split(TESTED)), [f"client-{i:04d}" for i in range(CLIENTS)]
    federation = Federation(test, test, rows, rows, names).on(device)
    space = Space(models.lenet(SHAPE, CLASSES), device=device)
    lift = Sequential() if device == "cpu" else by_rule(space, device, CLIENTS, 2)

    def measuring(algorithm: Any) -> Callable[[], Any]:
        federated = Federated(Setup(algorithm, Task(space, draws=False), space.ravel(), space.ravel_buffers()))
        clients = Clients(federated, federation, LocalWork(1, None, TESTED), 0, lift)
        fresh = row.write(row.fresh(federated.setup))
        for client in range(CLIENTS) if fresh else ():
            moved = {k: v + 0.01 * torch.randn_like(v) for k, v in fresh.items() if v.is_floating_point()}
            clients.rows.stage(0, client, fresh | moved)
        clients.commit(0)
        server, measure = federated.start()._replace(round=1), Evaluation(federated, federation, clients, Panel(1), 2)
        return lambda: measure(server, 0.1, everyone=True)

    bare, pooled = barest(device), "the global model, pooled"
    entries = {
        pooled: Contender(measuring(algorithms.fedavg()), 1, 2),
        "and 1,000 of clients": Contender(measuring(algorithms.local()), 1, 2),
        "barest 1,000, 1 thread": Contender(partial(bare, 1), 1, 1),
        "barest 1,000, 2 threads": Contender(partial(bare, 2), 1, 2),
    }
    for one in entries.values():
        one.round()
    yield Work(entries, pooled, goals=[Goal("and 1,000", pooled, EVALUATION)])


def barest(device: str) -> Callable[[int], Any]:
    """A thousand LeNets, each on its own ten samples, without an engine: weights and samples are at hand, as in a
    vector of apiece, with functions instead of modules. It counts the hits, in a given number of threads.
    """
    initial = [p.detach().to(device) for p in models.lenet(SHAPE, CLASSES).parameters()]
    noisy = lambda p: p + 0.01 * torch.randn_like(p)
    relaid = lambda p: p.clone(memory_format=torch.channels_last) if p.dim() == 4 else p
    weights = [[relaid(noisy(p)) for p in initial] for _ in range(CLIENTS)]
    x = torch.rand(CLIENTS * TESTED, *SHAPE).to(device).split(TESTED)
    y = torch.randint(CLASSES, (CLIENTS * TESTED,)).to(device).split(TESTED)

    def scores(w: list[Tensor], x: Tensor) -> Tensor:
        for kernel, bias in (w[:2], w[2:4]):
            x = F.relu(F.max_pool2d(F.conv2d(x, kernel, bias), 2))
        x = F.relu(F.linear(F.relu(F.linear(x.flatten(1), *w[4:6])), *w[6:8]))
        return F.linear(x, *w[8:])

    @torch.no_grad()
    def part(clients: range) -> list[Tensor]:
        return [(scores(weights[c], x[c]).argmax(1) == y[c]).sum() for c in clients]

    def loop(threads: int) -> None:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            hits = list(pool.map(part, (range(first, CLIENTS, threads) for first in range(threads))))
        torch.stack([hit for own in hits for hit in own]).tolist()  # when the device has done it

    return loop
