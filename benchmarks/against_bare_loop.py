"""Seconds a round against a bare PyTorch loop: the same batches, one process, contender by contender in turn.

The bare loop is what people write: deepcopy of a module, torch.optim.SGD, F.cross_entropy, the mean of state dicts. Its
batches are drawn before the clock starts, driftless's while it runs. It is timed with one thread and with the default
number; the faster counts. Around each sample a calibration loop on as many cores as the contender uses asks whether
they were free: where its CPU seconds are below 0.9 of the wall's, the sample is discarded and counted (and the loop
with the default threads is not begun: beside another job they spin, thirty times longer). Where no clean sample is
left, all are shown, marked ~: then read the CPU seconds.

    python benchmarks/against_bare_loop.py [--only lenet] [--samples 5] [--seconds 60] [--json FILE]
"""

from __future__ import annotations

import argparse
import copy
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from best_effort import BestEffort
from rich.console import Console
from timing import Contender, Row, cpu_of, measure, summary, table
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

from driftless import algorithms, memory, models
from driftless.choice import by_rule, compiled, vectorised
from driftless.clients import Clients
from driftless.data.federation import Federation
from driftless.federated import Federated
from driftless.lift import Sequential, Threaded
from driftless.processes import Processes
from driftless.space import Space
from driftless.state import Plan
from driftless.task import Task
from driftless.work import Work

LR, SHAPE, CLASSES = 0.1, (1, 28, 28), 10
DEFAULT_THREADS = torch.get_num_threads()


class Problem(NamedTuple):
    """The work of one round: so many clients with so many samples take so many steps."""

    model: Callable[..., nn.Module]
    clients: int
    samples: int
    work: Work
    target: tuple[str, float]  # the contender that counts ("" for the best), and its largest ratio to the bare loop


PROBLEMS = {
    "softmax regression": Problem(models.softmax_regression, 1000, 64, Work(10, None, 32), ("", 0.25)),
    "mlp": Problem(models.mlp, 10, 600, Work(50, None, 32), ("", 1.1)),
    "lenet": Problem(models.lenet, 10, 600, Work(50, None, 32), ("", 0.40)),
    "small lenet": Problem(models.cnn_fedcog, 10, 600, Work(50, None, 32), ("", 1.1)),
}


# --- what is compared -----------------------------------------------------------------------------
def bare_round(
    module: nn.Module, data: list[tuple[Tensor, Tensor]], batches: Sequence[Sequence[Tensor] | Tensor], lr: float = LR
) -> dict[str, Tensor]:
    """Federated averaging as people write it."""
    states = []
    for (x, y), client in zip(data, batches, strict=True):
        local = copy.deepcopy(module)
        local.train()
        optimiser = torch.optim.SGD(local.parameters(), lr=lr)
        for rows in client:
            optimiser.zero_grad()
            loss = F.cross_entropy(local(x[rows]), y[rows])
            loss.backward()
            optimiser.step()
        states.append(local.state_dict())
    mean = copy.deepcopy(states[0])
    for name in mean:
        for state in states[1:]:
            mean[name] += state[name]
        mean[name] = mean[name] / len(states)
    return mean


def as_written(model: nn.Module) -> nn.Module:
    """The same network and parameters with ReLU before a pool, where papers and people have it; driftless's own models
    have it behind.
    """
    layers = dict(model.named_children())
    names = list(layers)
    for pool, relu in pairwise(names):
        if isinstance(layers[pool], nn.MaxPool2d) and isinstance(layers[relu], nn.ReLU):
            at = names.index(pool)
            names[at : at + 2] = relu, pool
    return nn.Sequential(OrderedDict((name, layers[name]) for name in names))


def floor_round(pool: Tensor, weights: Tensor, places: Tensor) -> None:
    """What no softmax regression gets around, and nothing else: each step's samples are gathered, the scores and the
    gradient are products of matrices, of many clients in one call. Pool [n, F], weights [C, F], places [clients, K, B].
    """
    theirs = weights.repeat(len(places), 1, 1)
    for rows in places.unbind(1):
        x = torch.embedding(pool, rows)
        torch.bmm(torch.bmm(theirs, x.transpose(1, 2)), x)


def contenders(problem: Problem) -> dict[str, Contender]:
    """The bare loop and driftless under each lift, on one synthetic data set; each gives its new model as a vector."""
    torch.manual_seed(0)
    count, each = problem.clients, problem.samples
    x, y = torch.rand(count * each, *SHAPE), torch.randint(CLASSES, (count * each,))
    rows = list(torch.arange(count * each).split(each))
    names = [f"client-{i:04d}" for i in range(count)]
    federation = Federation((x, y), (x[:1], y[:1]), rows, rows, names)
    module = problem.model(SHAPE, CLASSES)
    space, work = Space(module), problem.work
    federated = Federated(algorithms.fedavg(), Task(space), space.ravel(), space.ravel_buffers())
    server, plan = federated.start(), Plan(list(range(count)), frozenset(), LR)
    data = list(zip(x.split(each), y.split(each), strict=True))
    batches = [work.batches(0, 0, name, each, work.count(0, 0, name, each)) for name in names]

    def bare(model: nn.Module) -> Callable[[], Tensor]:
        return lambda: space.from_state_dict(bare_round(model, data, batches))[0]

    def lifted(lift: Any, subject: Federated = federated) -> Callable[[], Tensor]:
        clients = Clients(subject, federation, work, 0, lift)
        return lambda: subject.round(server, clients, plan)[0].params

    def best(model: nn.Module) -> Callable[[], Tensor]:
        loop, filled = BestEffort(model, LR, 2), copy.deepcopy(model)

        def round() -> Tensor:
            vector_to_parameters(loop.round(data, batches), filled.parameters())
            return space.ravel(filled)

        return round

    written, entries = as_written(module), {}
    for threads in sorted({1, DEFAULT_THREADS}):
        said = f", {threads} threads" if threads > 1 else ""
        entries[f"bare{said}"] = Contender(bare(written), threads, threads)
        if list(written) != list(module.children()):
            entries[f"pooled first, bare{said}"] = Contender(bare(module), threads, threads)
    entries["best effort, 2 threads"] = Contender(best(module), 1, 2)
    chosen = type(by_rule(space, "cpu", count, 2))
    together, fused = (lift(space, "cpu", count, 2) for lift in (vectorised, compiled))
    for lift, cores in ((Sequential(), 1), (Threaded(2), 2), (workers := Processes(2), 2), (together, 2), (fused, 2)):
        name = type(lift).__name__.lower() + (" (auto)" if type(lift) is chosen else "")
        elsewhere = (lambda: sum(map(cpu_of, workers.pids()))) if lift is workers else lambda: 0.0
        entries[name] = Contender(lifted(lift), 1, cores, elsewhere)
    if problem.model is models.lenet:  # what `--precision bfloat16` gives: another model, within its rounding
        half = replace(federated, task=Task(Space(module, autocast=torch.bfloat16)))
        entries["threaded, bfloat16"] = Contender(lifted(Threaded(2), half), 1, 2)
    if isinstance(module, nn.Sequential) and [type(m) for m in module] == [nn.Flatten, nn.Linear]:
        threads = ThreadPoolExecutor(2, initializer=torch.set_num_threads, initargs=(1,))
        weights = next(module.parameters()).detach()
        parts = torch.stack([own[b] for own, b in zip(rows, batches, strict=True)]).split(together.chunk)
        floor = lambda: list(threads.map(lambda part: floor_round(x.flatten(1), weights, part), parts))
        entries["floor"] = Contender(floor, 1, 2)
    return entries


def agree(entries: dict[str, Contender]) -> None:
    """Everyone computes the same model; the first call is the warm-up too."""
    made = {name: entry.round() for name, entry in entries.items() if entry.threads == 1 and name != "floor"}
    for name, params in made.items():
        away = (params - made["bare"]).abs().max()
        most = 1e-2 if "bfloat16" in name else 1e-3
        assert away < most, f"{name} computed another model: it is {away:.1e} away"


# --- what is said ---------------------------------------------------------------------------------
def verdict(work: str, rows: list[Row], target: tuple[str, float]) -> str:
    """Whether the contender that counts is as fast as it should be."""
    who, most = target
    others = r"bare|pooled|best effort|floor|.*bfloat16"
    mine = [r for r in rows if not re.match(others, r.contender) and r.contender.startswith(who)]
    best, limit = min(mine, key=lambda r: r.ratio), next(r for r in rows if r.contender.startswith("best effort"))
    said = f"at most {most:g} wanted: " + ("met" if best.ratio <= most else "missed")
    doubt = "" if all(r.kept for r in rows) else " (the cores were not free: do not trust it)"
    beside = f"{best.wall / limit.wall:.2f} of the best-effort loop's"
    return f"{work}: {best.contender}, {best.ratio:.2f} of the bare loop's time, {said}; {beside}{doubt}"


def main() -> None:
    """Measure, print, and write what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=sorted(PROBLEMS), action="append", help="this work alone (may be repeated)")
    parser.add_argument("--samples", type=int, default=5, help="clean samples of every contender")
    parser.add_argument("--seconds", type=float, default=60.0, help="time for each work, clean samples or not")
    parser.add_argument("--json", type=Path, help="where to write the rows")
    options = parser.parse_args()
    memory.keep_freed()  # for the bare loop as well
    rows, verdicts = [], []
    for name in options.only or PROBLEMS:
        entries = contenders(PROBLEMS[name])
        torch.set_num_threads(1)
        agree(entries)
        rows += (of := summary(name, measure(entries, options.samples, options.seconds)))
        verdicts.append(verdict(name, of, PROBLEMS[name].target))
    console = Console(width=None if Console().is_terminal else 120)
    console.print(table(rows, "the bare loop"))
    for line in verdicts:
        console.print(line, highlight=False)
    if options.json:
        options.json.write_text(json.dumps([r._asdict() for r in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
