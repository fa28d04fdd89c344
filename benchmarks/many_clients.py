"""A hundred thousand registered clients, SCAFFOLD, a LeNet: seconds a round, and memory that does not grow with them.

Every client has a control variate of its own, on disk once it took part; its data are made when asked. Anonymous memory
(RssAnon: what the process itself holds, without files that the system caches) should stay under 2 GiB. The rows go to a
folder that is deleted at the end: 180 kB for each client that took part, up to three times that between checkpoints.

    python benchmarks/many_clients.py [--rounds 100] [--cohort 500] [--clients 100000] [--steps 2] [--workers 2]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from driftless import algorithms, memory, models
from driftless.choice import by_rule
from driftless.clients import Clients
from driftless.data.federation import MadeFederation
from driftless.federated import Federated
from driftless.randomness import generator
from driftless.rows import Layout
from driftless.space import Space
from driftless.state import Plan
from driftless.store import DiskRows
from driftless.task import Task
from driftless.work import Work, cohort

SHAPE, CLASSES, SAMPLES, MOST = (1, 28, 28), 10, 32, 2 * 2**30
SHOWN, CHECKPOINT_EVERY = (1, 10, 50, 100), 10


def make(client: int) -> Any:
    """The client's samples: two classes of its own, each class a pattern under noise."""
    rng = generator(0, "samples", client)
    y = torch.from_numpy(rng.choice(rng.choice(CLASSES, 2, replace=False), SAMPLES))
    patterns = torch.from_numpy(generator(0, "patterns").random((CLASSES, *SHAPE), dtype="float32"))
    return patterns[y] + 0.5 * torch.from_numpy(rng.standard_normal((SAMPLES, *SHAPE), dtype="float32")), y


def anonymous() -> int:
    """Bytes of memory that are this process's own."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def main() -> None:
    """Run the rounds and say what they took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, default in (("rounds", 100), ("cohort", 500), ("clients", 100_000), ("steps", 2), ("workers", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    memory.keep_freed()
    space = Space(models.cnn_fedcog(SHAPE, CLASSES))
    federated = Federated(algorithms.scaffold(), Task(space), space.ravel(), space.ravel_buffers())
    federation = MadeFederation(make, options.clients, SAMPLES, make(0))
    lift = by_rule(space, "cpu", options.cohort, options.workers)
    title = f"{options.clients:,} clients, {options.cohort} a round, {options.steps} steps each"
    table = Table(title=f"{title}, {type(lift).__name__.lower()}")
    for column in ("round", "seconds a round", "clients that took part", "RssAnon, MiB"):
        table.add_column(column, justify="right")
    most = began_with = anonymous()
    with tempfile.TemporaryDirectory() as folder:
        rows = DiskRows(folder, Layout.of(federated.fresh_row()), "benchmark")
        clients = Clients(federated, federation, Work(options.steps, None, 16), 0, lift, rows)
        server, touched, seconds = federated.start(), set(), []
        for t in range(options.rounds):
            began = time.perf_counter()
            chosen = cohort(0, t, federation.names, federation.seen, options.cohort)
            server, answer = federated.round(server, clients, Plan(chosen, frozenset(), 0.05))
            clients.commit(t)
            if (t + 1) % CHECKPOINT_EVERY == 0:
                clients.sync()
                clients.checkpointed(t + 1)
            seconds.append(time.perf_counter() - began)
            touched.update(answer.answered)
            most = max(most, anonymous())
            if t + 1 in SHOWN or t + 1 == options.rounds:
                each, held = sum(seconds) / len(seconds), anonymous() / 2**20
                table.add_row(str(t + 1), f"{each:.2f}", f"{len(touched):,}", f"{held:,.0f}")
                seconds = []
        clients.close()
    console = Console()
    console.print(table)
    said = "met" if most < MOST else "missed"
    console.print(
        f"at most {most / 2**20:,.0f} MiB, {began_with / 2**20:,.0f} of them before the first round; "
        f"target under {MOST / 2**20:,.0f}: {said}",
        highlight=False,
    )


if __name__ == "__main__":
    main()
