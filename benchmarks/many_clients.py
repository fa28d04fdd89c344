"""SCAFFOLD on a LeNet with very many registered clients: seconds per round and memory do not grow with their number.

Every client has its own control variate, on disk once it took part, and makes its data on request. There is one process
for each number of clients, and the processes take their rounds in turn. Anonymous memory (RssAnon: what a process
itself holds, without files that the system caches) should stay under 3 GiB, and the seconds per round within a factor
of 1.5. The rows lie in folders that are deleted at the end: one row for each client that took part, up to three between
checkpoints (343 kB each for LeNet).

    python benchmarks/many_clients.py [--clients 100 10000 1000000] [--cohort 100] [--rounds 100] [--model lenet]
        [--wait 5]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from timing import Contender, Row, Work, cpu_of, within

from apiece.data.federation import MadeFederation
from apiece.engine import row
from apiece.engine.clients import Clients
from apiece.engine.cohorts import cohort
from apiece.engine.federated import Federated
from apiece.engine.setup import Setup
from apiece.engine.state import Plan
from apiece.engine.work import Work as LocalWork
from apiece.experiment.choice import by_rule
from apiece.language import algorithms
from apiece.networks import models
from apiece.randomness import generator
from apiece.storage.disk import DiskRows
from apiece.storage.row_format import RowFormat
from apiece.system import allocator
from apiece.vector.space import Space
from apiece.vector.task import Task

SHAPE, CLASSES, SAMPLES = (1, 28, 28), 10, 32
MEMORY, FLAT = 3, 1.5  # GiB; the slowest over the fastest
CHECKPOINT_EVERY = 10


class Round(NamedTuple):
    """The cost of a round, the process's memory after it, and how many clients have taken part until then."""

    wall: float
    cpu: float
    memory: int
    touched: int


def make(client: int, wait: float = 0.0) -> Any:
    """The client's samples, after `wait` ms: it has two of the classes, and each class is a pattern with noise."""
    time.sleep(wait / 1000)
    rng = generator(0, "samples", client)
    y = torch.from_numpy(rng.choice(rng.choice(CLASSES, 2, replace=False), SAMPLES))
    patterns = torch.from_numpy(generator(0, "patterns").random((CLASSES, *SHAPE), dtype="float32"))
    return patterns[y] + 0.5 * torch.from_numpy(rng.standard_normal((SAMPLES, *SHAPE), dtype="float32")), y


def anonymous() -> int:
    """Bytes of memory that are this process's own."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def rounds(registered: int, options: argparse.Namespace) -> Iterator[Round]:
    """SCAFFOLD's rounds with this number of clients; each runs when it is asked for."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    allocator.keep_freed()
    space = Space(getattr(models, options.model)(SHAPE, CLASSES))
    federated = Federated(Setup(algorithms.scaffold(), Task(space, draws=False), space.ravel(), space.ravel_buffers()))
    made = partial(make, wait=options.wait)
    federation, size = MadeFederation(made, registered, SAMPLES, make(0)), min(options.cohort, registered)
    lift, touched, server = by_rule(space, "cpu", size, options.workers), set(), federated.start()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(DiskRows(folder, RowFormat.of(row.write(row.fresh(federated.setup))), "benchmark")) as rows,
    ):
        clients = Clients(federated, federation, LocalWork(options.steps, None, 16), 0, lift, rows)
        following = cohort(0, 0, federation.names, federation.participants, size)
        for t in itertools.count():
            wall, cpu = time.perf_counter(), time.process_time()
            chosen, following = following, cohort(0, t + 1, federation.names, federation.participants, size)
            clients.expect(following)
            server, answer = federated.round(server, clients, Plan(chosen, frozenset(), 0.05))
            clients.commit(t)
            if (t + 1) % CHECKPOINT_EVERY == 0:
                clients.sync()
                clients.checkpointed(t + 1)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            touched.update(answer.answered)
            yield Round(wall, cpu, anonymous(), len(touched))


def serve(registered: int, options: argparse.Namespace, pipe: Any) -> None:
    """One round for each word from the other end, as long as that end is open."""
    each = rounds(registered, options)
    with contextlib.suppress(EOFError):
        while pipe.recv():
            pipe.send(next(each))


class Home:
    """A process for this number of registered clients; it records the cost of its rounds."""

    def __init__(self, registered: int, options: argparse.Namespace):
        spawn, self.taken = multiprocessing.get_context("spawn"), list[Round]()
        self._end, other = spawn.Pipe()
        self.process = spawn.Process(target=serve, args=(registered, options, other), daemon=True)
        self.process.start()

    def round(self) -> None:
        """Ask for a round, and wait for it."""
        self._end.send("next")
        self.taken.append(self._end.recv())

    def cpu(self) -> float:
        """CPU seconds of its process so far."""
        return cpu_of(self.process.pid or 0)

    def end(self) -> None:
        """Let it delete its rows."""
        self._end.close()
        self.process.join()


@contextlib.contextmanager
def work(options: argparse.Namespace) -> Iterator[Work]:
    """SCAFFOLD's rounds, one process for each number of clients."""
    settings = arguments([])
    homes = {f"{n:,} registered": Home(n, settings) for n in settings.clients}

    def remarks(walls: dict[str, float]) -> dict[str, str]:
        last = {name: homes[name].taken[-1] for name in walls}
        return {n: f"{r.memory / 2**20:.0f} MiB, {r.touched:,} took part" for n, r in last.items()}

    entries = {name: Contender(home.round, 1, 2, home.cpu) for name, home in homes.items()}
    try:
        yield Work(
            entries, base="", remarks=remarks, said=lambda rows: said([r.wall for r in rows], homes.values(), rows)
        )
    finally:
        for home in homes.values():
            home.end()


def said(paces: list[float], homes: Iterable[Home], of: Sequence[Row] = ()) -> list[str]:
    """Whether these seconds per round of these rows meet the goals."""
    apart, most = max(paces) / min(paces), max(r.memory for home in homes for r in home.taken) / 2**30
    return [
        within(f"SCAFFOLD, seconds a round: {apart:.2f}, the slowest over the fastest", apart, FLAT, of),
        within(f"SCAFFOLD, anonymous memory: {most:.2f} GiB at the most", most, MEMORY),
    ]


def arguments(of: list[str] | None = None) -> argparse.Namespace:
    """The arguments, from the command line if none are given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[100, 10_000, 1_000_000])
    parser.add_argument("--model", default="lenet", choices=("lenet", "cnn_fedcog", "softmax_regression"))
    for name, default in (("rounds", 100), ("cohort", 100), ("steps", 2), ("workers", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--wait", type=float, default=0.0, help="ms until a client's data are there")
    return parser.parse_args(of)


def main() -> None:
    """Run the rounds and print their cost."""
    options = arguments()
    homes = {n: Home(n, options) for n in options.clients}
    for _ in track(range(options.rounds), description="rounds", transient=True):
        for home in homes.values():
            home.round()
    table = Table(title=f"SCAFFOLD, {options.model}, {options.cohort} clients a round, {options.steps} steps each")
    for column in ("registered", "round", "took part", "seconds a round", "CPU s", "RssAnon, MiB"):
        table.add_column(column, justify="right")
    tenth = max(1, options.rounds // 10)
    for registered, home in homes.items():
        home.end()
        for name, part in (("first", home.taken[:tenth]), ("last", home.taken[-tenth:])):
            last = part[-1]
            seconds, cpu = median(r.wall for r in part), median(r.cpu for r in part)
            numbers = (f"{last.touched:,}", f"{seconds:.2f}", f"{cpu:.2f}", f"{last.memory / 2**20:,.0f}")
            table.add_row(f"{registered:,}", f"{name} {tenth}", *numbers)
        table.add_section()
    console = Console(width=None if Console().is_terminal else 120)
    console.print(table)
    for line in said([median(r.wall for r in home.taken) for home in homes.values()], homes.values()):
        console.print(line, highlight=False)


if __name__ == "__main__":
    main()
