"""A figure's numbers as the page's script reads them.

A chart names its axis, its unit and its lines. A line over rounds has for every seed the place of its run in the
page's list of runs, the places of the measured rounds among those that the page has of the run (None: all), and the
values. The list has for every run its rounds, and the bytes and the seconds until then. Long runs are thinned evenly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from apiece.report.drawing import Series, variable
from apiece.report.records import Run, Runs

POINTS = 50_000  # values of all charts of a page together: about 350 kB
LEAST, USUAL = 24, 20  # points of a line at least, however many lines there are; the charts that a page usually has


def thin(places: Sequence[int], most: int) -> list[int]:
    """At most `most` of the places, evenly, with the first and the last.

    >>> thin(range(100), 4), thin([1, 5], 4)
    ([0, 33, 66, 99], [1, 5])
    """
    if len(places) <= most:
        return list(places)
    return [places[int(i)] for i in np.linspace(0, len(places) - 1, most).round()]


class Rounds:
    """The rounds that a page has of each run of its rows."""

    def __init__(self, rows: Iterable[Runs]) -> None:
        self.rows = list(rows)
        self.runs = [run for row in self.rows for run in row.runs]
        most = max(LEAST, POINTS // (USUAL * max(1, len(self.runs))))
        self._kept = [_kept(run, most) for run in self.runs]
        self.thinned = any(len(kept) < len(run.metrics) for run, kept in zip(self.runs, self._kept, strict=True))

    def axes(self) -> list[dict[str, Any]]:
        """For every run its name, its rounds, and bytes and seconds so far, where they were measured."""
        return [_axes(run, kept) for run, kept in zip(self.runs, self._kept, strict=True)]

    def lines(self, key: str, looks: Iterable[Series], scale: float = 1.0, of: Runs | None = None) -> list[Any]:
        """One line for each row, over its seeds; or for one row alone."""
        return [
            look_of(look) | {"runs": [self._values(run, key, scale) for run in row.runs]}
            for row, look in zip([of] if of else self.rows, looks, strict=True)
        ]

    def _values(self, run: Run, key: str, scale: float) -> list[Any]:
        place = next(i for i, other in enumerate(self.runs) if other is run)
        found = dict(zip(*(array.tolist() for array in run.series(key)), strict=True))
        kept = self._kept[place]
        at = [i for i, t in enumerate(kept) if t in found]
        return [place, None if len(at) == len(kept) else at, [number(scale * found[kept[i]]) for i in at]]


def look_of(look: Series) -> dict[str, Any]:
    """How a line looks."""
    return {"name": look.label, "color": variable(look.color), "dashes": look.dashes}


def number(value: float, digits: int = 5) -> float | int | None:
    """A value in few characters; None if it is not finite, because JSON has no word for that."""
    if not np.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _kept(run: Run, most: int) -> list[int]:
    """The rounds of a run that the page has: if they are too many, those in which the first metric was measured."""
    every, measured = [line["round"] for line in run.metrics], run.series(run.first)[0].tolist()
    if len(every) <= most:
        return every
    return sorted({*thin(measured if len(measured) >= most // 2 else every, most), every[0], every[-1]})


def _axes(run: Run, kept: list[int]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": run.label}
    sent, spent = (dict(zip(*(a.tolist() for a in run.series(key)), strict=True)) for key in ("bytes", "seconds"))
    so_far = dict(zip(spent, accumulate(spent.values()), strict=True))
    for name, values in (("bytes", sent), ("seconds", so_far)):
        if values:
            found[name] = [number(values[t], 6) if t in values else None for t in kept]
    return found | {"round": kept}
