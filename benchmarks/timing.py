"""How rounds of several contenders are timed in turn, with a test beside every sample whether the cores were free.

Around each sample a calibration loop on as many cores as the contender uses tests whether they are free: if its CPU
seconds are below 0.9 of the wall's, the sample is discarded and counted.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from statistics import median
from typing import Any, NamedTuple

import torch
from rich.table import Table

ALLOWED = "; at most "  # in every verdict
FREE = 0.9  # CPU seconds over wall seconds above which a core counts as free


class Sample(NamedTuple):
    wall: float
    cpu: float
    free: bool


class Contender(NamedTuple):
    """A round to time, its number of intra-op threads, and the cores that it may fill."""

    round: Callable[[], Any]  # returns its new model
    threads: int
    cores: int
    elsewhere: Callable[[], float] = lambda: 0.0  # CPU seconds of its worker processes so far


class Row(NamedTuple):
    """One contender on one piece of work: medians, spread, and its ratios to the base and to the limit."""

    work: str
    contender: str
    wall: float
    low: float
    high: float
    cpu: float
    ratio: float
    ratio_low: float
    ratio_high: float
    to_limit: float | None
    cpu_ratio: float
    kept: int
    discarded: int
    remark: str


class Goal(NamedTuple):
    """The fastest contender whose name begins with `contender` takes at most `most` times as long as the fastest one
    whose name begins with `base`.
    """

    contender: str
    base: str
    most: float


class Work(NamedTuple):
    """One piece of work: its contenders, whose time is 1.00, which is the limit, and its goals."""

    contenders: dict[str, Contender]
    base: str  # the fastest contender whose name begins so is 1.00
    limit: str = ""  # the fastest contender whose name begins so is the limit, if there is one
    goals: Sequence[Goal] = ()
    remarks: Callable[[dict[str, float]], dict[str, str]] = lambda walls: {}  # on contenders, from their seconds
    said: Callable[[list[Row]], list[str]] = lambda rows: []  # further lines


def cpu_of(process: int) -> float:
    """CPU seconds of another process, by Linux's clock for it (its number in the upper bits, 2 for scheduled time)."""
    return time.clock_gettime((~process << 3) | 2)


# --- how it is timed ------------------------------------------------------------------------------
def share_of_core(_: int = 0, seconds: float = 0.02) -> float:
    """CPU seconds over wall seconds of a short loop that releases the interpreter's lock."""
    block, began, cpu = bytes(1 << 20), time.perf_counter(), time.thread_time()
    while time.perf_counter() - began < seconds:
        hashlib.sha256(block).digest()
    return (time.thread_time() - cpu) / (time.perf_counter() - began)


def free_cores(count: int) -> bool:
    """Whether `count` cores are free now."""
    with ThreadPoolExecutor(count) as pool:
        return min(pool.map(share_of_core, range(count))) >= FREE


def sample(contender: Contender) -> Sample | None:
    """One round, timed between two tests of the cores; None if it would only spin."""
    before = free_cores(contender.cores)
    if contender.threads > 1 and not before:
        return None
    torch.set_num_threads(contender.threads)
    cpu, wall = time.process_time() + contender.elsewhere(), time.perf_counter()
    contender.round()
    wall, cpu = time.perf_counter() - wall, time.process_time() + contender.elsewhere() - cpu
    return Sample(wall, cpu, before and free_cores(contender.cores))


def measure(entries: dict[str, Contender], samples: int, seconds: float) -> dict[str, list[Sample | None]]:
    """Samples in turn, until every contender has `samples` clean ones or the time is up."""
    taken: dict[str, list[Sample | None]] = {name: [] for name in entries}
    until = time.perf_counter() + seconds
    while min(len(clean(of)) for of in taken.values()) < samples and time.perf_counter() < until:
        for name, entry in entries.items():
            taken[name].append(sample(entry))
    return taken


def clean(samples: list[Sample | None]) -> list[Sample]:
    """The samples taken while the cores were free."""
    return [s for s in samples if s is not None and s.free]


# --- what is said ---------------------------------------------------------------------------------
def summary(name: str, work: Work, taken: dict[str, list[Sample | None]]) -> list[Row]:
    """Medians, the spread (lowest and highest), and the ratios to the base and to the limit."""
    begun = {who: [s for s in of if s is not None] for who, of in taken.items()}
    kept = {who: clean(taken[who]) or of for who, of in begun.items() if of}
    walls = {who: median(s.wall for s in of) for who, of in kept.items()}
    cpus = {who: median(s.cpu for s in begun[who]) for who in kept}
    least = lambda start, of: min(seconds for who, seconds in of.items() if who.startswith(start))
    base, base_cpu, limit = least(work.base, walls), least(work.base, cpus), work.limit and least(work.limit, walls)
    remarks, rows = work.remarks(walls), []
    for who, of in kept.items():
        wall, cpu, count = walls[who], cpus[who], len(clean(taken[who]))
        low, high = min(s.wall for s in of), max(s.wall for s in of)
        ratios = wall / base, low / base, high / base, wall / limit if limit else None, cpu / base_cpu
        counts = count, len(taken[who]) - count
        rows.append(Row(name, who, wall, low, high, cpu, *ratios, *counts, remarks.get(who, "")))
    return rows


def verdict(goal: Goal, rows: list[Row]) -> str:
    """Whether a goal is met, with the range of the ratio."""
    mine, base = (
        min((r for r in rows if r.contender.startswith(start)), key=lambda r: r.wall)
        for start in (goal.contender, goal.base)
    )
    ratio, span = mine.wall / base.wall, f"{mine.low / base.high:.2f}-{mine.high / base.low:.2f}"
    said = f"{mine.work}: {mine.contender} takes {ratio:.2f} ({span}) of the time of {base.contender}"
    faster = f", which is {1 / ratio:.2f} times as fast" if ratio < 1 else ""
    return within(said + faster, ratio, goal.most, (mine, base))


def within(said: str, value: float, most: float, of: Sequence[Row] = ()) -> str:
    """A result, whether it is as small as it should be, and a doubt if these rows had no cores to themselves."""
    doubt = "" if all(r.kept for r in of) else " (the cores were not free: do not trust it)"
    return f"{said}{ALLOWED}{most:g} allowed: {'met' if value <= most else 'missed'}{doubt}"


def is_verdict(line: str) -> bool:
    """Whether a line says if a goal is met."""
    return ALLOWED in line


def verdicts(work: Work, rows: list[Row]) -> list[str]:
    """One line for each goal whose contenders took part, and the work's further lines."""
    there = lambda start: any(r.contender.startswith(start) for r in rows)
    goals = (goal for goal in work.goals if there(goal.contender) and there(goal.base))
    return [*(verdict(goal, rows) for goal in goals), *work.said(rows)]


COLUMNS = ("contender", "seconds", "ratio", "span", "of limit", "CPU s", "CPU", "clean", "left out", "remark")
TEXT = ("contender", "remark")  # the columns that have words


def cells(r: Row) -> tuple[str, ...]:
    """A row's text for each of the COLUMNS: the ratio is to the 1.00 of its work, and the span that of its samples."""
    mark = "" if r.kept else "~"
    walls = f"{mark}{r.wall:.3f}", f"{mark}{r.ratio:.2f}", f"{r.ratio_low:.2f}-{r.ratio_high:.2f}"
    limit = "" if r.to_limit is None else f"{r.to_limit:.2f}"
    return r.contender, *walls, limit, f"{r.cpu:.3f}", f"{r.cpu_ratio:.2f}", str(r.kept), str(r.discarded), r.remark


def by_work(rows: list[Row]) -> dict[str, list[Row]]:
    """The rows of each work."""
    return {work: list(of) for work, of in groupby(rows, lambda r: r.work)}


def table(rows: list[Row]) -> Table:
    """One line per contender."""
    out = Table(title="seconds a round, and ratios; ~: no sample had its cores to itself")
    for column in ("work", *COLUMNS):
        out.add_column(column, justify="left" if column in ("work", *TEXT) else "right", no_wrap=True)
    for work, of in by_work(rows).items():
        for r in of:
            out.add_row(work, *cells(r))
        out.add_section()
    return out
