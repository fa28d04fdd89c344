"""One run of the benchmarks as a page of the documentation: its goals, and a table for each work."""

from __future__ import annotations

import os
from datetime import date

from timing import COLUMNS, TEXT, Row, by_work, cells

from apiece.reproduce.ledger import device_name

HEAD = """# Speed, one run

`make bench` writes this page: all contenders of a work take turns in one run. [Benchmarks](../benchmarks.md) says what
the works and the contenders are, and why goals were missed.

- **seconds** of a round: the median of the samples whose cores were free; `~` marks a row that has none.
- **ratio** to the row of 1.00, and its **span** over samples; **of limit**, the ratio to the best-effort loop.
- **CPU s**, seconds of all its processes, and **CPU**, their ratio.
- **clean** samples, and those **left out** because other work had the cores.
- **(auto)** is what a user who names no lift gets in a short run. One of more than half a minute to three minutes is
  [compiled](../benchmarks.md#the-default-in-runs-of-one-ten-and-sixty-minutes).
"""


def page(rows: list[Row], said: list[str], device: str) -> str:
    """The page's text, of a run's rows and of what it said, on this device."""
    where = f"Measured on {date.today()}: {device_name(device)}, {len(os.sched_getaffinity(0))} cores."
    goals = [line for line in said if line.partition("; at most ")[1]]
    versions = [line for line in said if line not in goals]
    parts = [HEAD, where, "", *(f"- {line}" for line in versions)]
    parts += ["", "## Goals", "", *(f"- {line}" for line in goals)]
    for work, of in by_work(rows).items():
        parts += ["", f"## {work}", "", _line(COLUMNS)]
        parts += [_line(["---" if column in TEXT else "---:" for column in COLUMNS]), *(_line(cells(r)) for r in of)]
    return "\n".join(parts) + "\n"


def _line(texts: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(texts)} |"
