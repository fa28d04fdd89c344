"""The table of a grid: for a terminal, as Markdown, and in a file beside the runs for their report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from apiece.errors import UserError
from apiece.report.terminal import NAMED, Best, Fitting
from apiece.report.text import markdown
from apiece.storage.log import UNREADABLE
from apiece.system.files import atomic_write

if TYPE_CHECKING:
    from apiece.report.records import Spread

NAME = "grid.json"
NOTHING = "nothing"  # a grid's column that adds nothing


class Grid(NamedTuple):
    """The table: cells by row and column, which cells of a row are its best, and the footnotes."""

    rows: list[str]
    columns: list[str]
    cells: list[list[str]]
    best: list[list[bool]]
    notes: list[str]
    about: str
    folders: Sequence[str] = ()  # of the cells that were run, in their order, relative to the grid's folder
    values: Sequence[Sequence[Spread | None]] = ()  # of the cells, None where there is no number to compare

    def markdown(self) -> str:
        lines = [
            [f"`{name}`", *(f"**{text}**" if top else text for text, top in zip(row, tops, strict=True))]
            for name, row, tops in zip(self.rows, self.cells, self.best, strict=True)
        ]
        headings = ["", *(name if name == NOTHING else f"`{name}`" for name in self.columns)]
        return "\n\n".join([markdown(headings, lines), *self.said()])

    def for_programs(self) -> dict[str, Any]:
        """The table as JSON: one entry for each cell."""
        from apiece.report.for_programs import spread_for_programs  # not before: names are checked without numpy

        cells = [
            {"row": row, "column": column, "text": self.cells[r][c], "best": bool(self.best[r][c])}
            | spread_for_programs(self.values[r][c])
            for r, row in enumerate(self.rows)
            for c, column in enumerate(self.columns)
        ]
        return {"about": self.about, "notes": self.notes, "cells": cells}

    def said(self) -> list[str]:
        """The lines below the table."""
        return [self.about, *(f"[{i}] {note}" for i, note in enumerate(self.notes, start=1))]

    def table(self) -> Fitting:
        """The table for a terminal, with rich; a long heading is wrapped."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        widths = [
            max(2 + max(len(row[place]) for row in self.cells), *(min(len(word), NAMED) for word in name.split()))
            for place, name in enumerate(self.columns)
        ]

        def table(places: list[int]) -> Table:
            made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
            made.add_column("", overflow="fold")
            for place in places:
                heading = Text("\n".join(wrap(self.columns[place], widths[place])))
                made.add_column(heading, justify="right", no_wrap=True)
            for name, row, tops in zip(self.rows, self.cells, self.best, strict=True):
                made.add_row(Text(name), *(Best(row[at]) if tops[at] else Text(row[at]) for at in places))
            return made

        return Fitting(max(map(len, self.rows)), widths, table)

    def keep(self, out: Path) -> None:
        """Write OUT/grid.json, from which a report of the folder shows the same table."""
        atomic_write(out / NAME, f"{json.dumps(self._asdict(), indent=1)}\n".encode())

    @classmethod
    def kept(cls, out: Path) -> Grid | None:
        """The table of a grid's folder, None for any other folder; UserError for a grid.json that is no grid."""
        path = out / NAME
        if not path.is_file():
            return None
        try:
            made = cls(**json.loads(path.read_bytes()))
            texts = (made.rows, made.columns, made.notes, made.folders, [made.about])
            tables = ((made.cells, str), (made.best, bool))
            right = all(_are(str, row, len(row)) for row in texts) and all(
                _are(list, table, len(made.rows)) and all(_are(kind, row, len(made.columns)) for row in table)
                for table, kind in tables
            )
            if not right:
                raise TypeError
            return made
        except UNREADABLE as error:
            raise UserError(f"{path} holds no grid: run the same grid again to write it anew.") from error


def _are(kind: type, values: Any, count: int) -> bool:
    """Whether it is a list of so many values of a kind."""
    there = isinstance(values, list | tuple) and len(values) == count
    return there and all(isinstance(value, kind) for value in values)
