"""Seconds a round against other simulators, on the same model, clients and batches, contender by contender in turn.

The work is that of pfl's CIFAR-10 benchmark: 1,000 users with 50 images of 3x32x32 each, 50 users a round, one pass in
batches of 10, a network of two convolutions. The images are noise: nothing here is learned. Each peer runs in an
environment of its own under `.peers/`, made at the first run (gigabytes, minutes), and answers over a pipe. Every
contender starts every round at the same weights, and must make the same model of them.

    python benchmarks/peers.py [--only lenet] [--peers pfl] [--small] [--samples 5] [--seconds 60] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from against_bare_loop import bare_round
from best_effort import BestEffort
from problem import MODELS, TRAINING, Given, Problem, Stopwatch, flat, read, write
from remotes import CORES, ENVIRONMENTS, PEERS, REQUIREMENTS, Remote
from rich.console import Console
from timing import Contender, Row, cpu_of, measure, summary, table
from torch import Tensor

from driftless import algorithms, memory
from driftless.choice import by_rule, compiled, products, vectorised
from driftless.clients import Clients
from driftless.data.federation import Federation
from driftless.federated import Federated
from driftless.lift import Sequential, Threaded
from driftless.optim import Sgd
from driftless.processes import Processes
from driftless.space import Space
from driftless.state import Plan
from driftless.task import Task
from driftless.work import Work

ALIKE = 1e-2  # the largest distance of two models, as a share of the round's move: a ReLU may flip at a last bit
PROBLEMS = {
    "pfl": Problem("simple_cnn", 3, 32, clients=1000, cohort=50, samples=50, batch=10, lr=0.1),
    "lenet": Problem("lenet", 1, 28, clients=100, cohort=10, samples=1600, batch=32, lr=0.1),
}


class Entry(NamedTuple):
    """One contender: how it is timed, and how its model [D] and its share of compute are found out."""

    contender: Contender
    check: Callable[[], Shown]


class Shown(NamedTuple):
    """What a contender has shown of a round: its model [D], the share of its workers' time in which they computed, and
    how many gradients they took; None where neither can be seen from outside.
    """

    model: Tensor
    share: float | None
    steps: int | None


# --- our own contenders ---------------------------------------------------------------------------
def work_of(problem: Problem) -> Work:
    """One pass over a client's samples."""
    return Work(None, 1, problem.batch)


def names(problem: Problem) -> list[str]:
    """What driftless calls the clients."""
    return [f"client-{number:04d}" for number in range(problem.clients)]


def make(problem: Problem) -> Given:
    """Noise for every client, and Glorot's initial weights."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    shape = (problem.clients, problem.samples)
    x = rng.standard_normal((*shape, problem.channels, problem.side, problem.side), dtype=np.float32)
    module = MODELS[problem.model](problem.channels, problem.side, problem.classes)
    return Given(problem, x, rng.integers(problem.classes, size=shape), flat(module.parameters()))


def watched(contender: Contender) -> Shown:
    """A second round of it, seen from inside."""
    contender.round()
    with Stopwatch().on(*TRAINING, (Sgd, "step")) as watch:
        began = time.perf_counter()
        made = contender.round()
        wall = time.perf_counter() - began
    return Shown(made, sum(watch.seconds) / (wall * (contender.cores // contender.threads)), watch.steps())


def loops(given: Given) -> dict[str, Entry]:
    """The bare loop as people write it, and as good as its author can make it."""
    problem, module = given.problem, given.module()
    data = [given.client(number) for number in range(problem.cohort)]
    batches = [torch.arange(problem.samples).split(problem.batch)] * problem.cohort
    bare = lambda: flat(bare_round(module, data, batches, problem.lr).values())
    best = {threads: BestEffort(module, problem.lr, threads) for threads in (1, CORES)}
    out = {
        "bare": Contender(bare, 1, 1),
        f"bare, {CORES} threads": Contender(bare, CORES, CORES),
        "best effort, 1 thread": Contender(lambda: best[1].round(data, batches), 1, 1),
        f"best effort, {CORES} threads": Contender(lambda: best[CORES].round(data, batches), 1, CORES),
    }
    return {name: Entry(one, lambda one=one: watched(one)) for name, one in out.items()}


def lifts(given: Given) -> dict[str, Entry]:
    """driftless under each lift."""
    problem, work, module = given.problem, work_of(given.problem), given.module()
    each = problem.samples
    x, y = (torch.from_numpy(array).flatten(0, 1) for array in (given.x, given.y))
    # a client's samples lie in the order in which driftless will take them in its first round
    orders = [torch.cat(tuple(work.batches(0, 0, name, each, -(-each // work.batch)))) for name in names(problem)]
    rows = [number * each + order.argsort() for number, order in enumerate(orders)]
    federation = Federation((x, y), (x[:1], y[:1]), rows, rows, names(problem))
    space = Space(module)
    federated = Federated(algorithms.fedavg(), Task(space), space.ravel(), space.ravel_buffers())
    server, plan = federated.start(), Plan(list(range(problem.cohort)), frozenset(), problem.lr)
    chosen = type(by_rule(space, "cpu", problem.cohort, CORES))

    def plain(vector: Tensor) -> Tensor:
        state = space.state_dict(vector)
        return flat(state[name] for name, _ in module.named_parameters())

    def entry(lift: Any, cores: int) -> Entry:
        clients = Clients(federated, federation, work, 0, lift)
        pids = lift.pids if isinstance(lift, Processes) else list
        new = lambda: plain(federated.round(server, clients, plan)[0].params)
        one = Contender(new, 1, cores, lambda: sum(map(cpu_of, pids())))
        seen = isinstance(lift, Sequential) or type(lift) is Threaded
        return Entry(one, lambda: watched(one) if seen else Shown(new(), None, None))

    out = {}
    together = [of(space, "cpu", problem.cohort, CORES) for of in (vectorised, products, compiled)]
    for lift, cores in ((Sequential(), 1), *((lift, CORES) for lift in (Threaded(CORES), Processes(CORES), *together))):
        name = f"driftless, {type(lift).__name__.lower()}" + (" (auto)" if type(lift) is chosen else "")
        out[name] = entry(lift, cores)
    return out


@contextlib.contextmanager
def remotes(given: Given, folder: Path, wanted: list[str]) -> Iterator[tuple[dict[str, Entry], list[str]]]:
    """The peers that can be started, and what is to be said of them: versions, or why one cannot."""
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


# --- what is said ---------------------------------------------------------------------------------
def checked(entries: dict[str, Entry], given: Given) -> tuple[dict[str, str], list[str]]:
    """Each contender's share of compute, where it makes the bare loop's model in as many steps; and who does not."""
    shares, wrong, bare = {}, [], given.initial
    for name, entry in entries.items():
        torch.set_num_threads(entry.contender.threads)
        shown = entry.check()
        bare = shown.model if name == "bare" else bare
        away = float((shown.model - bare).norm() / (bare - given.initial).norm())
        if away > ALIKE or shown.steps not in (None, given.problem.steps):
            wrong.append(
                f"{name} is left out: {shown.steps} steps, its model {away:.1e} of the way from the bare loop's"
            )
            continue
        shares[name] = "" if shown.share is None else f"{shown.share:.0%}"
        print(f"{name}: model {away:.1e} of the way from the bare loop's", file=sys.stderr)
    return shares, wrong


def verdicts(rows: list[Row]) -> list[str]:
    """driftless's fastest lift against each goal, with the range of the ratio."""
    of = lambda who: [row for row in rows if row.contender.startswith(who)]
    mine, limit = (min(of(who), key=lambda r: r.wall) for who in ("driftless", "best effort"))
    doubt = lambda *some: "" if all(r.kept for r in some) else " (the cores were not free: do not trust it)"
    said = "met" if mine.wall <= 1.1 * limit.wall else "missed"
    span = f"{mine.low / limit.high:.2f}-{mine.high / limit.low:.2f}"
    lines = [
        f"{mine.contender}: {mine.wall / limit.wall:.2f} ({span}) of the best-effort loop's time, at most 1.1 wanted: "
        f"{said}{doubt(mine, limit)}"
    ]
    for who, least in (("pfl", 2.0), ("flwr", 20.0), ("fluke", None)):
        for r in sorted(of(who), key=lambda r: r.wall):
            span = f"{r.low / mine.high:.2f}-{r.high / mine.low:.2f}"
            said = f", at least {least:g} wanted: {'met' if r.wall >= least * mine.wall else 'missed'}" if least else ""
            lines.append(f"{r.contender}: {r.wall / mine.wall:.2f} ({span}) of its time{said}{doubt(mine, r)}")
    return lines


def main() -> None:
    """Measure, print, and write what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=sorted(PROBLEMS), default="pfl", help="the work")
    parser.add_argument("--peers", choices=sorted(REQUIREMENTS), nargs="*", default=list(REQUIREMENTS))
    parser.add_argument("--small", action="store_true", help="ten clients, four a round: to see that everything works")
    parser.add_argument("--samples", type=int, default=5, help="clean samples of every contender")
    parser.add_argument("--seconds", type=float, default=60.0, help="time for the samples, clean or not")
    parser.add_argument("--json", type=Path, help="where to write the rows")
    options = parser.parse_args()
    memory.keep_freed()  # for the loops as well
    problem = PROBLEMS[options.only]
    problem = problem._replace(clients=10, cohort=4) if options.small else problem
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write(folder, make(problem))
        given = read(folder)
        with remotes(given, folder, options.peers) as (peers, said):
            entries = loops(given) | lifts(given) | peers
            shares, wrong = checked(entries, given)
            timed = {name: entries[name].contender for name in shares}
            rows = summary(options.only, measure(timed, options.samples, options.seconds), base="best effort")
    console = Console(width=None if Console().is_terminal else 120)
    console.print(table(rows, "the best-effort loop", shares))
    said.append(f"ours: Python {sys.version.split()[0]}, torch {torch.__version__}")
    for line in said + wrong + verdicts(rows):
        console.print(line, highlight=False)
    if options.json:
        options.json.write_text(json.dumps([r._asdict() for r in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
