"""What the page shows under one heading: figures that share a legend, and tables before them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from apiece.report.drawing import Series
from apiece.report.records import Runs
from apiece.report.table import Column

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 6  # at most so many runs, or splits, get panels of their own


class Panel(NamedTuple):
    """One figure with its heading, its caption and its alternative text."""

    title: str
    caption: str
    alt: str
    figure: Figure
    chart: dict[str, Any] | None = None  # its numbers for the page's script, as `charts` makes them


class Section(NamedTuple):
    """Figures that belong together and share a legend, after their tables, each below its heading."""

    title: str
    legend: list[Series]
    panels: list[Panel]
    tables: Sequence[tuple[str, list[Column]]] = ()
    of: str = "rows"  # what the legend's lines are: runs, or layers


def several(rows: Iterable[Runs]) -> bool:
    """Whether some row has more than one seed."""
    return any(len(row.runs) > 1 for row in rows)
