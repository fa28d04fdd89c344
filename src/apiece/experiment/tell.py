"""The tables that a command prints at its end: of runs in folders, and of runs that have none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from apiece.config.tables import to_table
from apiece.experiment.result import Result, measures_of


def tell_results(results: list[Result], target: float | None) -> None:
    """Print the table of runs that have no folder."""
    from rich.console import Console

    from apiece.report.records import Run, Runs
    from apiece.report.table import summary

    name = results[0].experiment.config.algorithm
    setup = results[0].experiment.federated.setup
    known = {"algorithm": repr(setup.algorithm), "buffers": setup.task.space.buffer_size}
    more: Any = {"measures": measures_of(setup.task), "resolved": known}
    runs = [Run(name, to_table(r.experiment.config), r.metrics, [], Path(), **more) for r in results]
    Console().print(summary([Runs(name, tuple(runs))], target))


def tell(paths: list[Path], target: float | None, page: Path) -> None:
    """Print the table of run folders, and where their report is, if there is one."""
    from rich.console import Console

    from apiece.report.table import compare as table

    console = Console()
    console.print(table(paths, target))
    if page.is_file():
        console.print(f"report: {page}", markup=False, soft_wrap=True)


def remaining(seconds: float, done: float, left: float) -> str:
    """About how long the rest takes, if so much was done in so many seconds; "" if that cannot be said.

    >>> remaining(60, 2, 3), remaining(1, 1, 1), remaining(10, 5, 0)
    (', about 2 minutes left', ', about 1 second left', '')
    """
    if not done or not left:
        return ""
    return f", about {lasting(seconds / done * left)} left"


def lasting(seconds: float) -> str:
    """A time as text: `2 minutes`."""
    units = ((3600, "hours"), (60, "minutes"), (1, "seconds"))
    size, unit = next(((size, unit) for size, unit in units if seconds >= 1.5 * size), units[-1])
    count = max(1, round(seconds / size))
    return f"{count} {unit if count > 1 else unit[:-1]}"
