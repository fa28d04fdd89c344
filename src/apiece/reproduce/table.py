"""The values of a card's cells over seeds: what claims and figures are made of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple, TypeVar

import numpy as np

from apiece.report.records import Curve, Spread, below, spread

One = TypeVar("One")
Where = tuple[str, str]


class OutOfReach(Exception):
    """A claim speaks of a cell that was not run, or not with every seed."""


def every(holds: Callable[[One], bool], of: Iterable[One]) -> bool:
    """Whether something holds of each of these. One whose cells were not run leaves that open, unless it fails of
    another, whichever comes first: raises OutOfReach if nothing fails and a cell is missing.
    """
    missing = None
    for one in of:
        try:
            if not holds(one):
                return False
        except OutOfReach as error:
            missing = error
    if missing is not None:
        raise missing
    return True


class Line(NamedTuple):
    """One cell with one seed, as its line of JSON has it."""

    scale: str
    row: str
    column: str
    seed: int
    settings: Mapping[str, Any]
    values: Mapping[str, Any]
    seconds: float
    made: Mapping[str, Any]  # when, from which commit, with which versions, on which device

    @property
    def failed(self) -> str:
        """Why the run ended without values: it became non-finite; "" if it did not."""
        return str(self.values.get("failed", ""))


@dataclass(frozen=True)
class Table:
    """A card's lines at one scale, and those of the scale's search. A cell is named by its row and its column."""

    lines: tuple[Line, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    searched: tuple[Line, ...] = ()
    diverged: frozenset[Where] = frozenset()  # of a whole table: the cells of which a seed became non-finite

    def whole(self, seeds: Collection[int]) -> Table:
        """The cells alone that have all these seeds, none of which became non-finite, with what all of them measured: a
        claim is not judged by a part of a cell.
        """
        cells: dict[Where, list[Line]] = {}
        for line in self.lines:
            if line.seed in seeds:
                cells.setdefault((line.row, line.column), []).append(line)
        whole = {where: lines for where, lines in cells.items() if len(lines) == len(seeds)}
        failed = {where for where, lines in whole.items() if any(line.failed for line in lines)}
        kept = [line for where, lines in whole.items() if where not in failed for line in _measured_by_all(lines)]
        return replace(self, lines=tuple(kept), diverged=frozenset(failed))

    def of(self, where: Where, name: str) -> list[Any]:
        """A value of a cell, one for each seed; raises OutOfReach if the cell was not run."""
        found = [line.values[name] for line in self.lines if (line.row, line.column) == where and name in line.values]
        if not found:
            raise OutOfReach(f"{', '.join(where)} was not run")
        return found

    def by_seed(self, name: str, *where: Where) -> list[tuple[Any, ...]]:
        """A value of several cells side by side, one tuple for each seed that all of them have."""
        of = [{x.seed: x.values[name] for x in self.lines if (x.row, x.column) == one and name in x.values}
              for one in where]  # fmt: skip
        seeds = sorted(set[int](of[0]).intersection(*of[1:]))
        if not seeds:
            raise OutOfReach(f"{' and '.join(', '.join(one) for one in where)} have no seed in common")
        return [tuple(values[seed] for values in of) for seed in seeds]

    def failures(self, where: Where) -> tuple[int, int]:
        """(how many seeds of a cell became non-finite, how many there are)."""
        own = [line for line in self.lines if (line.row, line.column) == where]
        return sum(bool(line.failed) for line in own), len(own)

    def finite(self) -> Table:
        """The cells alone of which no seed became non-finite."""
        failed = {(line.row, line.column) for line in self.lines if line.failed}
        return replace(self, lines=tuple(line for line in self.lines if (line.row, line.column) not in failed))

    def spread(self, where: Where, name: str = "accuracy") -> Spread:
        """The mean and the standard deviation of a number over seeds."""
        made = spread(self.of(where, name))
        if made is None:
            raise OutOfReach(f"{', '.join(where)} has no {name}")
        return made

    def mean(self, where: Where, name: str = "accuracy") -> float:
        """The mean of a number over seeds."""
        return self.spread(where, name).mean

    def highest(self, row: str, name: str = "accuracy", rows: Sequence[str] = (), columns: Sequence[str] = ()) -> bool:
        """Whether no other of these rows has a larger mean of a number in any of these columns (none given: of all)."""
        pairs = product(rows or self.rows, columns or self.columns)
        return every(lambda at: self.mean((row, at[1]), name) >= self.mean(at, name), pairs)

    def above(self, one: Where, other: Where, name: str = "accuracy") -> bool:
        """Whether one cell lies above another by more than the spread of their differences explains.

        A t-test of the differences seed by seed, one-sided, at 5 %: cells of one seed share the split, the initial
        model and the cohorts, so what these do to both is no difference. Where they have one seed in common, its
        difference counts as it is.
        """
        apart = spread([high - low for high, low in self.by_seed(name, one, other)])
        return apart is not None and below(Spread(0.0, 0.0, apart.seeds), apart)

    def curve(self, where: Where, name: str) -> Curve:
        """A curve [[x, ...], [y, ...]] of a cell: its mean and standard deviation over seeds at each x [P]."""
        found = np.array(self.of(where, name), dtype=float)  # [seeds, 2, P]
        y = found[:, 1]
        return Curve(found[0, 0], y.mean(axis=0), y.std(axis=0, ddof=1) if len(y) > 1 else np.zeros(y.shape[1]))


def _measured_by_all(lines: Sequence[Line]) -> list[Line]:
    """The lines of a cell with the values alone that none of them lacks."""
    names = set[str](lines[0].values).intersection(*(line.values for line in lines))
    return [line._replace(values={name: line.values[name] for name in line.values if name in names}) for line in lines]
