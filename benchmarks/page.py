"""One run of the benchmarks as a page of the documentation: its goals, and a table for each work."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import date

from timing import COLUMNS, Row, by_work, cells, is_verdict

from apiece.report.text import markdown
from apiece.reproduce.ledger import device_name

HEAD = """# Speed, one run

`make bench` writes this page: all contenders of a work take turns in one run. [Benchmarks](../benchmarks.md) says what
the works and the contenders are, and why goals were missed.

- **seconds** of a round: the median of the samples whose cores were free; `~` marks a row that has none.
- **ratio** to the row of 1.00, and its **span** over samples; **of limit**, the ratio to the best-effort loop.
- **CPU s**, seconds of all its processes, and **CPU**, their ratio.
- **clean** samples, and those **left out** because other work had the cores.
- **(auto)** is what a user who names no lift gets in a short run. A longer run is
  [compiled](../benchmarks.md#the-default-in-runs-of-one-ten-and-sixty-minutes); the model decides what is longer.
"""


def page(rows: list[Row], said: list[str], device: str) -> str:
    """The page's text, of a run's rows and of what it said, on this device."""
    where = f"Measured on {date.today()}: {device_name(device)}, {len(os.sched_getaffinity(0))} cores."
    goals, others = (_list(line for line in said if is_verdict(line) == wanted) for wanted in (True, False))
    parts = [HEAD, where, "", others, "", "## Goals", "", goals]
    for work, of in by_work(rows).items():
        parts += ["", f"## {work}", "", markdown(COLUMNS, map(cells, of))]
    return "\n".join(parts) + "\n"


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
