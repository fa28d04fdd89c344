"""A card: one table or figure of a paper, as its set-up section says it, with the paper's numbers and its claims.

A card has rows and columns, as the table has; a cell is one row in one column, and is run once for each seed. Its
settings are those of `apiece run`, put together in this order, of which the later count:

    set-up, column, row, scale, the scale's column, the scale's row
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from apiece.config.tables import HELD_OUT
from apiece.errors import UserError, nearest
from apiece.reproduce.table import Line, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALES = ("smoke", "cpu", "paper")
Settings = Mapping[str, Any]
Changes = Mapping[str, Settings]
Published = Mapping[
    str, Sequence[tuple[float, float] | float | None]
]  # by row: of each column, the mean or with its sd
NOTHING: Settings = {}


class Number(NamedTuple):
    """One number of a cell: its heading, how many digits it has after the point, and the factor to the paper's unit.
    A number that is `timed` differs from run to run.
    """

    title: str
    digits: int = 2
    factor: float = 1.0
    timed: bool = False


ACCURACY = Number("accuracy, %", 2, 100.0)


class Claim(NamedTuple):
    """One sentence of the paper, and whether it holds of a table. It is judged at the scales at which it can show."""

    name: str
    sentence: str
    holds: Callable[[Table], bool]
    scales: tuple[str, ...] = ("cpu", "paper")


@dataclass(frozen=True)
class Search:
    """How a setting is chosen for each cell, as FedALS's paper does it: from a first value on, it is multiplied and
    divided by a factor until the number is no better. It is measured on samples held out from training, with one seed.
    """

    setting: str
    first: float
    number: str = "accuracy"
    factor: float = 2.0
    seed: int = 0
    changes: Settings = field(default_factory=lambda: dict(HELD_OUT))

    def go_on(self, known: Mapping[float, float]) -> tuple[float, bool]:
        """(the next value to try, False), or (the best value, True), from the numbers of the values tried so far."""
        if self.first not in known:
            return self.first, False
        for step in (self.factor, 1 / self.factor):
            value = self.first
            while value * step in known and known[value * step] > known[value]:
                value *= step
            if value * step not in known:
                return value * step, False
        return max(known, key=lambda value: known[value]), True


@dataclass(frozen=True)
class Scale:
    """How large a card is run: in which settings it differs from the paper, and with which rows, columns and seeds."""

    about: str
    changes: Settings = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2)
    rows: Changes | None = None  # the rows that are run, each with its changes; None: all
    columns: Changes | None = None
    search: Search | None = None


def published(text: str) -> Published:
    """A paper's means and standard deviations by row, of lines of text: the row's name, then both for each column."""
    lines = [line.split() for line in text.strip().splitlines()]
    return {name: list(zip(map(float, rest[::2]), map(float, rest[1::2]), strict=True)) for name, *rest in lines}


@dataclass(frozen=True)
class Card:
    """One table or figure.

    `work(settings, folder)` runs one cell in a folder and gives its values by name: numbers, or lists of numbers for
    curves. `derived`: by name, a value that is made of a finished cell's line when it is read. `numbers` are those of
    all these that the table shows. `published`: by number, the paper's rows. `open`: what the paper leaves open, and
    what was taken.
    """

    title: str
    setup: Settings
    rows: Changes
    columns: Changes
    scales: Mapping[str, Scale]
    work: Callable[[Settings, Path], dict[str, Any]]
    numbers: Mapping[str, Number]
    published: Mapping[str, Published] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    open: tuple[str, ...] = ()
    figure: Callable[[Table, Figure], None] | None = None
    derived: Mapping[str, Callable[[Line], Any]] = field(default_factory=dict)

    def scale(self, name: str) -> Scale:
        """The scale of that name; UserError if the card has none."""
        if name not in self.scales:
            raise UserError(f"{self.title} has no scale {name!r}; {nearest(name, self.scales)}")
        return self.scales[name]

    def places(self, scale: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(the rows, the columns) that the scale runs."""
        one = self.scale(scale)
        return tuple(self.rows if one.rows is None else one.rows), tuple(one.columns or self.columns)

    def cells(self, scale: str) -> list[tuple[str, str]]:
        """The (row, column) pairs that the scale runs."""
        rows, columns = self.places(scale)
        return [(row, column) for column in columns for row in rows]

    def settings(self, scale: str, row: str, column: str) -> dict[str, Any]:
        """The settings of a cell, without its seed."""
        one = self.scale(scale)
        last = (one.changes, (one.columns or {}).get(column, NOTHING), (one.rows or {}).get(row, NOTHING))
        made: dict[str, Any] = {}
        for part in (self.setup, self.columns[column], self.rows[row], *last):
            made |= part
        return {name: value for name, value in made.items() if value is not None}

    def paper(self, number: str, row: str, column: str) -> tuple[float, float | None] | None:
        """The paper's mean and standard deviation, if it has them."""
        line = self.published.get(number, {}).get(row)
        value = None if line is None else dict(zip(self.columns, line, strict=True))[column]
        return None if value is None else value if isinstance(value, tuple) else (value, None)
