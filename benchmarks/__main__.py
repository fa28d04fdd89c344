"""Seconds per round beside bare PyTorch loops and other simulators, in one table: contenders take turns, work by work.

Around each sample a calibration loop on as many cores as the contender uses tests whether they are free. If its CPU
seconds are below 0.9 of the wall's, the sample is discarded and counted; contenders with several intra-op threads do
not even start, because beside another job they spin, thirty times longer. Without a clean sample all are shown, marked
~: then read the CPU seconds. Peers get their own environments under `.peers/` (gigabytes, once); `--peers` without
names leaves them out.

    python benchmarks [--only lenet pfl] [--peers pfl] [--samples 5] [--seconds 60] [--small] [--json FILE] [--page F]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import engine
import many_clients
import on_a_gpu
import torch
import training
from page import page
from remotes import REQUIREMENTS
from rich.console import Console
from timing import Row, Work, measure, summary, table, verdicts

from apiece.system import allocator


class Offer(NamedTuple):
    """A piece of work, and how long to measure it by default."""

    work: Callable[[argparse.Namespace], AbstractContextManager[Work]]
    samples: int  # clean samples of every contender
    seconds: float  # for all samples, clean or not


OFFERS = {name: Offer(partial(training.work, of), 7, of.seconds) for name, of in training.SETS.items()} | {
    "scaffold": Offer(many_clients.work, 100, 600),
    "no-op": Offer(engine.noop, 25, 30),
    "evaluation": Offer(engine.evaluation_on_the_cpu, 15, 60),
}
ON_A_GPU = {name: Offer(partial(on_a_gpu.work, of), 3, 60) for name, of in on_a_gpu.SETS.items()} | {
    "gpu-evaluation": Offer(engine.evaluation, 5, 20)
}


def arguments() -> argparse.Namespace:
    """The command line's arguments."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=(__doc__ or "").partition("\n")[0])
    works = OFFERS | ON_A_GPU
    parser.add_argument("--only", choices=works, nargs="+", help="these works (default: those of the machine)")
    parser.add_argument("--peers", choices=REQUIREMENTS, nargs="*", default=list(REQUIREMENTS))
    parser.add_argument("--samples", type=int, help="clean samples of every contender")
    parser.add_argument("--seconds", type=float, help="time for each work, clean samples or not")
    parser.add_argument("--small", action="store_true", help="a little of everything, to test that it works")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="for works on a GPU")
    parser.add_argument("--json", type=Path, help="where to write the rows, after each work")
    parser.add_argument("--page", type=Path, help="where to write a page of the documentation")
    return parser.parse_args()


def main() -> None:
    """Measure, print and write the results."""
    options = arguments()
    allocator.keep_freed()  # also for the loops
    rows, said = list[Row](), [f"ours: Python {sys.version.split()[0]}, torch {torch.__version__}"]
    offers = OFFERS | ON_A_GPU
    for name in options.only or (OFFERS if options.device == "cpu" else offers):
        offer = offers[name]
        torch.set_num_threads(1)
        with offer.work(options) as work:
            taken = measure(work.contenders, options.samples or offer.samples, options.seconds or offer.seconds)
            rows += (some := summary(name, work, taken))
            said += verdicts(work, some)
        if options.json:
            options.json.write_text(json.dumps([r._asdict() for r in rows], indent=1) + "\n")
    said = list(dict.fromkeys(said))
    if options.page:
        options.page.write_text(page(rows, said, options.device))
    console = Console(width=max(Console().width, 180))  # wrapped text can be read, truncated text cannot
    console.print(table(rows))
    for line in said:
        console.print(line, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
