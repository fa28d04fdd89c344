"""What the engine itself costs: a client that does nothing, and the measuring of a thousand clients' own models.

A no-op client is asked for the identity, on a model of 62,000 numbers, with no data and no memory: a thousand of a
thousand clients on one thread, so all that is timed is asking, answering and summing. The evaluation is of a thousand
LeNets, each on ten test samples of its own, beside one pass of one LeNet over all ten thousand; and beside the barest
loop over a thousand LeNets, the limit of a pass a model. Samples alternate.

    python benchmarks/engine.py [--samples 7]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

from driftless import algorithms, memory, models
from driftless.clients import Clients
from driftless.data.federation import Federation
from driftless.evaluate import Evaluation, Panel
from driftless.federated import Federated
from driftless.lift import Sequential
from driftless.piece import Uniform
from driftless.space import Space
from driftless.state import Reply
from driftless.task import Task
from driftless.work import Work

CLIENTS, TESTED, SHAPE, CLASSES = 1000, 10, (1, 28, 28), 10
NOOP, EVALUATION = 0.1, 2.0  # ms a client; times the pass over the pooled data


class Idle(Work):
    """One step without samples."""

    def count(self, *of: Any) -> int:
        return 1

    def batches(self, *of: Any) -> tuple:
        return ()


class Identity(Federated):
    """An algorithm with an operation that gives back what was sent."""

    def identity(self, how: Any, shared: Any, each: Any) -> Reply:
        return Reply(Uniform(shared.model), {}, {}, True)


def noop() -> Callable[[], Any]:
    """A round of the identity."""
    space = Space(nn.Linear(620, 100, bias=False))
    nothing, empty = (torch.zeros(0, 620), torch.zeros(0, dtype=torch.int64)), [torch.arange(0)] * CLIENTS
    federation = Federation(nothing, nothing, empty, empty, [f"client-{i:04d}" for i in range(CLIENTS)])
    federated = Identity(algorithms.fedavg(), Task(space), space.ravel(), space.ravel_buffers())
    clients, shared = Clients(federated, federation, Idle(), 0, Sequential()), federated.shared(federated.start(), 0.1)
    return lambda: clients.at(range(CLIENTS), frozenset(), 0).map("identity", shared)


def evaluations() -> tuple[Callable[[], Any], Callable[[], Any]]:
    """(one model over all test samples and every client's own over its own, the first of these alone)."""
    test = torch.rand(CLIENTS * TESTED, *SHAPE), torch.randint(CLASSES, (CLIENTS * TESTED,))
    rows, names = list(torch.arange(CLIENTS * TESTED).split(TESTED)), [f"client-{i:04d}" for i in range(CLIENTS)]
    federation, space = Federation(test, test, rows, rows, names), Space(models.lenet(SHAPE, CLASSES))

    def evaluation(algorithm: Any) -> Callable[[], Any]:
        federated = Federated(algorithm, Task(space), space.ravel(), space.ravel_buffers())
        clients = Clients(federated, federation, Work(1, None, TESTED), 0, Sequential())
        for client in range(CLIENTS) if federated.fresh_row() else ():
            row = {k: v + 0.01 * torch.randn_like(v) for k, v in federated.fresh_row().items() if v.is_floating_point()}
            clients.rows.stage(0, client, federated.fresh_row() | row)
        clients.commit(0)
        server, measure = federated.start()._replace(round=1), Evaluation(federated, federation, clients, Panel(1), 2)
        return lambda: measure(server, 0.1, everyone=True)

    return evaluation(algorithms.local()), evaluation(algorithms.fedavg())


def barest() -> Callable[[int], Any]:
    """A thousand LeNets, each on ten samples of its own, without an engine: weights and samples at hand, as they lie in
    a vector of driftless, and functions instead of modules; the hits are counted, in so many threads.
    """
    initial = [p.detach() for p in models.lenet(SHAPE, CLASSES).parameters()]
    noisy = lambda p: p + 0.01 * torch.randn_like(p)
    relaid = lambda p: p.clone(memory_format=torch.channels_last) if p.dim() == 4 else p
    weights = [[relaid(noisy(p)) for p in initial] for _ in range(CLIENTS)]
    x = torch.rand(CLIENTS * TESTED, *SHAPE).split(TESTED)
    y = torch.randint(CLASSES, (CLIENTS * TESTED,)).split(TESTED)

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
            list(pool.map(part, (range(first, CLIENTS, threads) for first in range(threads))))

    return loop


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    memory.keep_freed()
    work = {"no-op": noop(), **dict(zip(("own", "pooled"), evaluations(), strict=True))}
    bare = barest()
    work |= {f"barest, {threads}": partial(bare, threads) for threads in (1, 2)}
    taken: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(options.samples + 1):  # the first is the warm-up
        for name, each in work.items():
            taken[name].append(seconds(each))
    idle = [1000 * s / CLIENTS for s in taken["no-op"][1:]]
    passes = lambda who, but=0: [(t - but * p) / p for t, p in zip(taken[who][1:], taken["pooled"][1:], strict=True)]
    ratios = passes("own", but=1)  # the same evaluation measures the global model too
    console = Console(width=None if Console().is_terminal else 120)
    for what, of, goal in (
        ("a no-op client, ms", idle, NOOP),
        ("a thousand LeNets over one pass of the pooled test data", ratios, EVALUATION),
    ):
        said = f"{median(of):.3f} ({min(of):.3f} to {max(of):.3f}), at most {goal:g} wanted: "
        console.print(f"{what}: {said}{'met' if median(of) <= goal else 'missed'}", highlight=False)
    for threads in (1, 2):
        of = passes(f"barest, {threads}")
        said = f"{median(of):.3f} ({min(of):.3f} to {max(of):.3f}) passes, threads: {threads}"
        console.print(f"the barest loop over a thousand LeNets: {said}", highlight=False)


if __name__ == "__main__":
    main()
