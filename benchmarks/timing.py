"""How rounds of several contenders are timed in turn: beside every sample a look at whether the cores were free.

Around each sample a calibration loop on as many cores as the contender uses asks whether they were free: where its CPU
seconds are below 0.9 of the wall's, the sample is discarded and counted.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any, NamedTuple

import torch
from rich.table import Table

FREE = 0.9  # CPU seconds over wall seconds from which a core counts as free


class Sample(NamedTuple):
    wall: float
    cpu: float
    free: bool


class Contender(NamedTuple):
    """A round to be timed, the intra-op threads it is given, and the cores it may fill."""

    round: Callable[[], Any]  # gives its new model
    threads: int
    cores: int
    elsewhere: Callable[[], float] = lambda: 0.0  # CPU seconds of its worker processes, until now


class Row(NamedTuple):
    """One contender on one piece of work: medians, spread, and its ratios to the base."""

    work: str
    contender: str
    wall: float
    low: float
    high: float
    cpu: float
    ratio: float
    ratio_low: float
    ratio_high: float
    cpu_ratio: float
    kept: int
    discarded: int


def cpu_of(process: int) -> float:
    """CPU seconds of another process, by Linux's clock for it (its number in the upper bits, 2 for scheduled time)."""
    return time.clock_gettime((~process << 3) | 2)


# --- how it is timed ------------------------------------------------------------------------------
def share_of_core(_: int = 0, seconds: float = 0.02) -> float:
    """CPU seconds over wall seconds of a short loop that lets go of the interpreter's lock."""
    block, began, cpu = bytes(1 << 20), time.perf_counter(), time.thread_time()
    while time.perf_counter() - began < seconds:
        hashlib.sha256(block).digest()
    return (time.thread_time() - cpu) / (time.perf_counter() - began)


def free_cores(count: int) -> bool:
    """Whether so many cores are free now."""
    with ThreadPoolExecutor(count) as pool:
        return min(pool.map(share_of_core, range(count))) >= FREE


def sample(contender: Contender) -> Sample | None:
    """One round, timed between two looks at the cores; none where it would only spin."""
    before = free_cores(contender.cores)
    if contender.threads > 1 and not before:
        return None
    torch.set_num_threads(contender.threads)
    cpu, wall = time.process_time() + contender.elsewhere(), time.perf_counter()
    contender.round()
    wall, cpu = time.perf_counter() - wall, time.process_time() + contender.elsewhere() - cpu
    return Sample(wall, cpu, before and free_cores(contender.cores))


def measure(entries: dict[str, Contender], samples: int, seconds: float) -> dict[str, list[Sample | None]]:
    """Samples in turn, until every contender has so many clean ones or the time is up."""
    taken: dict[str, list[Sample | None]] = {name: [] for name in entries}
    until = time.perf_counter() + seconds
    while min(len(clean(of)) for of in taken.values()) < samples and time.perf_counter() < until:
        for name, entry in entries.items():
            taken[name].append(sample(entry))
    return taken


def clean(samples: list[Sample | None]) -> list[Sample]:
    """Those taken while the cores were free."""
    return [s for s in samples if s is not None and s.free]


# --- what is said ---------------------------------------------------------------------------------
def summary(work: str, taken: dict[str, list[Sample | None]], base: str = "bare") -> list[Row]:
    """Medians, the spread (lowest and highest), and the ratios to the faster of those whose name begins with the
    base's.
    """
    begun = {name: [s for s in of if s is not None] for name, of in taken.items()}
    kept = {name: clean(taken[name]) or of for name, of in begun.items() if of}
    bases = [name for name in kept if name.startswith(base)]
    wall_base = min(median(s.wall for s in kept[name]) for name in bases)
    cpu_base = min(median(s.cpu for s in begun[name]) for name in bases)
    rows = []
    for name, of in kept.items():
        wall, cpu, count = median(s.wall for s in of), median(s.cpu for s in begun[name]), len(clean(taken[name]))
        low, high = min(s.wall for s in of), max(s.wall for s in of)
        ratios = (wall / wall_base, low / wall_base, high / wall_base, cpu / cpu_base)
        rows.append(Row(work, name, wall, low, high, cpu, *ratios, count, len(taken[name]) - count))
    return rows


def table(rows: list[Row], base: str, shares: dict[str, str] | None = None) -> Table:
    """One line a contender; its ratio is to the base, with the lowest and the highest; `shares` are a last column."""
    out = Table(title=f"seconds a round, and ratios to {base}")
    columns = ("work", "contender", "seconds", "ratio", "CPU s", "ratio", "clean", "left out")
    for column in (*columns, *(("compute",) if shares is not None else ())):
        out.add_column(column, justify="left" if column in ("work", "contender") else "right", no_wrap=True)
    last = ""
    for r in rows:
        if r.work != last:
            out.add_section()
        mark, last = "" if r.kept else "~", r.work
        ratio = f"{mark}{r.ratio:.2f} ({r.ratio_low:.2f}-{r.ratio_high:.2f})"
        walls, cpu = (f"{mark}{r.wall:.3f}", ratio), (f"{r.cpu:.3f}", f"{r.cpu_ratio:.2f}")
        more = () if shares is None else (shares.get(r.contender, ""),)
        out.add_row(r.work, r.contender, *walls, *cpu, str(r.kept), str(r.discarded), *more)
    return out
