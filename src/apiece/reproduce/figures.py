"""What cards draw: curves over rounds, and a number over a setting. Each function makes a card's `figure`.

A panel has lines by label; a line is read off the table when it is drawn, and one whose cells were not run is left out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from apiece.report.drawing import Series, line, scales, series
from apiece.report.records import Curve
from apiece.reproduce.standing import spread_of
from apiece.reproduce.table import OutOfReach, Table, Where

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Draw = Callable[[Table, "Figure"], None]
Read = Callable[[Table], Curve]


class Panel(NamedTuple):
    """One panel: its title, the labels of its axes with their units, lines by label, and whether y is a log axis."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Read]
    log: bool = False


def over_rounds(where: Where, key: str, factor: float = 1.0) -> Read:
    """A cell's curve [[x, ...], [y, ...]], y times a factor."""

    def read(table: Table) -> Curve:
        curve = table.curve(where, key)
        return Curve(curve.x, factor * curve.mean, factor * curve.sd)

    return read


def over_setting(cells: Mapping[float, Where], name: str, factor: float = 1.0) -> Read:
    """A number of several cells over the setting in which they differ; cells that were not run are left out."""

    def read(table: Table) -> Curve:
        there = {x: spread_of(table, name, *where) for x, where in sorted(cells.items())}
        found = {x: spread for x, spread in there.items() if spread is not None}
        if not found:
            raise OutOfReach(f"no cell has {name}")
        mean, sd = (np.array([factor * getattr(spread, part) for spread in found.values()]) for part in ("mean", "sd"))
        return Curve(np.array(list(found)), mean, sd)

    return read


def by_column(key: str, x: str, y: str, factor: float = 1.0, log: bool = False) -> Draw:
    """One panel for each column, with the curves of its rows."""

    def draw(table: Table, figure: Figure) -> None:
        made = [
            Panel(c, x, y, {row: over_rounds((row, c), key, factor) for row in table.rows}, log) for c in table.columns
        ]
        draw_panels(made, table, figure)

    return draw


def panels(*made: Panel, across: int = 3) -> Draw:
    """These panels, so many in a row."""
    return lambda table, figure: draw_panels(made, table, figure, across)


def draw_panels(made: Sequence[Panel], table: Table, figure: Figure, across: int = 3) -> None:
    """Draw the panels that have a line; raises OutOfReach if none has. Where all have the same labels, one legend
    stands beside them; otherwise each has its own.
    """
    found = [(panel, _lines(panel, table)) for panel in made]
    drawn = [(panel, lines) for panel, lines in found if lines]
    if not drawn:
        raise OutOfReach("no cell of the figure was run")
    columns = min(across, len(drawn))
    rows = -(-len(drawn) // columns)
    labels = {tuple(look.label for look, _ in lines) for _, lines in drawn}
    shared = len(labels) == 1 and max(map(len, labels)) > 1 and (len(drawn) > 1 or max(map(len, labels)) > 4)
    figure.set_size_inches(4.0 * columns + 2.0 * shared, 3.3 * rows)
    for place, (panel, lines) in enumerate(drawn, 1):
        axes = figure.add_subplot(rows, columns, place)
        keys = _draw(axes, panel, lines)
        if not shared:
            axes.legend(handles=keys, fontsize="small", frameon=False)
        elif place == 1:
            figure.legend(handles=keys, fontsize="small", frameon=False, loc="outside right upper")


def _draw(axes: Axes, panel: Panel, lines: list[tuple[Series, Curve]]) -> list[Any]:
    """Draw the lines, and return what the legend shows of them."""
    for look, curve in lines:
        line(axes, curve, look, panel.log)
    if panel.log:
        scales(axes, [curve for _, curve in lines], log=True)
    if panel.x == "round":  # of which there is no half, however few they are
        axes.locator_params(axis="x", integer=True)
    axes.set(title=panel.title, xlabel=panel.x, ylabel=textwrap.fill(panel.y, 36))
    keys = [axes.plot([], [], color=look.color, label=look.label)[0] for look, _ in lines]
    for key, (look, _) in zip(keys, lines, strict=True):
        key.set_linestyle((0, tuple(map(float, look.dashes.split()))) if look.dashes else "-")
    return keys


def _lines(panel: Panel, table: Table) -> list[tuple[Series, Curve]]:
    """The panel's lines that can be read; each label has its color also where others are missing."""
    found = []
    for look, read in zip(series(panel.lines), panel.lines.values(), strict=True):
        try:
            found.append((look, read(table)))
        except OutOfReach:
            continue
    return found
