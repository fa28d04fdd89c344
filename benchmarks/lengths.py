"""What `auto` takes for runs of one, ten and sixty minutes, beside the best lift named by hand, compile time included.

    python benchmarks/lengths.py [--only lenet mlp] [--rounds 5] [--cpu]

For each work of training.py, and for other batches, networks and images, every lift makes one round, which includes
recording and compiling with nothing in torch's cache, and then `--rounds` more, in turn. A run's total is that first
round and as many medians as follow. The minutes are those of the lift that `auto` takes where nothing is compiled. The
goal: `auto` takes at most 1.1 of the best total. With `--cpu`, CPU seconds over the cores stand for wall seconds, for a
machine that is not idle.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from statistics import median

import torch
from problem import MODELS, Problem
from rich.console import Console
from rich.table import Table
from training import CORES, SETS, Entry, lifts, make, own

from apiece.experiment.choice import of_cohort
from apiece.experiment.worth import Counter, Facts, compiling
from apiece.networks.models import resnet20
from apiece.vector.space import Space

MOST, MINUTES = 1.1, (1, 10, 60)
GRAY = {"side": 28, "channels": 1, "clients": 10, "cohort": 10, "lr": 1e-3}
COLORED = GRAY | {"side": 32, "channels": 3}
MODELS["resnet20"] = lambda channels, side, classes: resnet20((channels, side, side), classes)
WORKS = {name: of.problem for name, of in SETS.items()} | {
    "lenet, batches of 64": Problem("lenet", samples=1280, batch=64, **GRAY),
    "lenet, batches of 10": Problem("lenet", samples=500, batch=10, **GRAY),
    "mlp, batches of 10": Problem("mlp", samples=500, batch=10, **GRAY),
    "cnn": Problem("cnn", samples=960, batch=32, **GRAY),
    "cnn, batches of 10": Problem("cnn", samples=300, batch=10, **GRAY),
    "cnn, batches of 64": Problem("cnn", samples=1280, batch=64, **GRAY),
    "cnn, batches of 256": Problem("cnn", samples=2560, batch=256, **GRAY),
    "colored cnn": Problem("cnn", samples=960, batch=32, **COLORED),
    "colored cnn, batches of 10": Problem("cnn", samples=300, batch=10, **COLORED),
    "colored lenet": Problem("lenet", samples=1600, batch=32, **COLORED),
    "colored lenet, batches of 128": Problem("lenet", samples=2560, batch=128, **COLORED),
    "colored lenet, batches of 10": Problem("lenet", samples=500, batch=10, **COLORED),
    "colored small lenet": Problem("small_lenet", samples=2500, batch=50, **COLORED),
    "colored small lenet, batches of 10": Problem("small_lenet", samples=500, batch=10, **COLORED),
    "pfl, batches of 32": Problem("simple_cnn", samples=320, batch=32, **COLORED),
    "resnet20, batches of 10": Problem("resnet20", samples=50, batch=10, **GRAY),
}
EXACT = ("sequential", "threaded", "processes")


def facts_of(given) -> Facts:
    """What the rule knows of one round of this work."""
    problem, module = given.problem, own(given)
    space, (x, _) = Space(module), given.client(0)
    with Counter() as counter:
        module(x[: problem.batch])
    steps = problem.cohort * problem.samples // problem.batch
    return Facts(steps=steps, alike=True, **of_cohort(space, problem.cohort, CORES), **counter.step())


def timed(entries: dict[str, Entry], rounds: int, of: Callable[[Entry], float]) -> dict[str, tuple[float, float]]:
    """Seconds of each lift's first round, and of a later one."""
    first = {name: of(entry) for name, entry in entries.items()}
    later = [{name: of(entry) for name, entry in entries.items()} for _ in range(rounds)]
    return {name: (first[name], median(turn[name] for turn in later)) for name in entries}


def wall(entry: Entry) -> float:
    """Seconds of a round."""
    began = time.perf_counter()
    entry.contender.round()
    return time.perf_counter() - began


def cpu(entry: Entry) -> float:
    """CPU seconds of a round, and of the compilers that it started, over the cores that it may fill."""
    spent = lambda: sum(os.times()[:4]) + entry.contender.elsewhere()
    began = spent()
    entry.contender.round()
    return (spent() - began) / entry.contender.cores


def main() -> None:
    """Measure and print, work by work."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=WORKS, nargs="+", default=list(WORKS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", action="store_true")
    options, console = parser.parse_args(), Console(width=140)
    torch.set_num_threads(1)
    for name in options.only:
        with tempfile.TemporaryDirectory() as cache:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
            given = make(WORKS[name])
            entries = {n.split()[1]: entry for n, entry in lifts(given).items() if n.startswith("apiece")}
            taken = timed(entries, options.rounds, cpu if options.cpu else wall)
        facts = facts_of(given)
        usual = "vectorized" if facts.vectorized else min(EXACT, key=lambda lift: taken[lift][1])
        table = Table("lift", "first round", "round", *(f"{m} min" for m in MINUTES), title=name)
        rounds = [max(1, round(60 * minutes / taken[usual][1])) for minutes in MINUTES]
        totals = {lift: [first + (n - 1) * each for n in rounds] for lift, (first, each) in taken.items()}
        found = [compiling(facts._replace(steps=facts.steps * n)) for n in rounds]
        totals["auto"] = [totals["compiled" if f.pays else usual][place] for place, f in enumerate(found)]
        best = [min(each) for each in zip(*totals.values(), strict=True)]
        for lift, of in totals.items():
            cells = (f"{t:.0f} ({t / b:.2f})" for t, b in zip(of, best, strict=True))
            measured = [f"{seconds:.2f}" for seconds in taken.get(lift, ())] or ["", ""]
            table.add_row(lift, *measured, *cells)
        console.print(table)
        console.print(*(f"{m} min: {f.why}" for m, f in zip(MINUTES, found, strict=True)), sep="\n", highlight=False)
        worst = max(t / b for t, b in zip(totals["auto"], best, strict=True))
        console.print(f"{name}: auto takes at most {worst:.2f} of the best; at most {MOST:g} allowed", highlight=False)


if __name__ == "__main__":
    main()
