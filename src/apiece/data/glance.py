"""A first look at a table, before anything is trained: a .csv by Python's own reader, a .parquet by pyarrow."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from apiece.data.columns import (
    ODD,
    SPLIT,
    Columns,
    chosen,
    coded,
    incomplete,
    like_free_text,
    refuse_words,
    spelled_alike,
)
from apiece.data.folders import files_of, marked_by, name_of
from apiece.data.separated import refuse_unlike, rows_of
from apiece.data.tasks import whole_amounts
from apiece.errors import UserError, with_extra

ROWS = 100_000  # so many rows are looked at
GAPS = {"#N/A N/A", *"nan NaN -nan -NaN N/A n/a #N/A #NA NA NULL null None <NA>".split()}  # what pandas takes for one
GAPS |= {*"1.#IND -1.#IND 1.#QNAN -1.#QNAN".split()}
DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}.*|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}.*")  # 2024-07-31 14:00, 31.7.24
FEW, SHOWN = 8, 20  # up to so many values of a column, and so many columns, are listed
NINES = re.compile(r"-?99+(\.0*)?")  # what a gap is often written as: -99, -999, 9999
ENOUGH = 20  # rows from which on it is no chance that a column determines another


class Column(NamedTuple):
    """What stands in a column: its different values, those of them that are no numbers, how many gaps, and the place of
    the first gap among the rows.
    """

    name: str
    values: frozenset[str]
    words: frozenset[str]
    gaps: int
    first: int

    @property
    def number(self) -> bool:
        """Whether all values are numbers, or truth values, which are read as such."""
        return not self.words

    @property
    def almost(self) -> bool:
        """Whether it was meant to be of numbers."""
        return 0 < len(self.words) <= ODD * len(self.values)

    @property
    def dates(self) -> bool:
        """Whether all values are dates."""
        return bool(self.words) and all(map(DATE.fullmatch, self.values))

    @property
    def commas(self) -> bool:
        """Whether all values are numbers with a comma where a point should be."""
        return bool(self.words) and all(_is_number(value.replace(",", ".", 1)) for value in self.values)

    def said(self) -> str:
        """Its name, and of text how many there are."""
        if self.dates:
            return f"{self.name} (dates)"
        return self.name if self.number else f"{self.name} ({len(self.values)} different texts)"


class Glance(NamedTuple):
    """A table by its columns' roles.

    `left`: columns of dates, those that look like names or free text, and those that are alike in all rows. `telling`:
    inputs each of whose values goes with one value of the target. `nines`: (column, number, rows), where a number of
    nines lies far from all others.
    """

    path: str
    rows: int
    target: Column
    client: Column | None
    inputs: list[Column]
    left: list[Column]
    telling: list[str]
    nines: list[tuple[str, str, int]]

    @property
    def task(self) -> str:
        """What can be learned of the target: regression of numbers of which one is no whole one, or that hardly repeat;
        classification of others.
        """
        if not self.target.number or coded(self.target.values) or any(map(_is_truth, self.target.values)):
            return "classification"
        numbers = sorted(map(float, self.target.values))
        whole = all(number.is_integer() for number in numbers)
        return "regression" if not whole or whole_amounts(numbers, self.rows) else "classification"

    def told(self) -> list[str]:
        """What there is to know of it, in sentences."""
        more = "the first " if self.rows == ROWS else ""
        said = [f"{self.path}: {more}{self.rows:,} rows."]
        how = "classes" if self.task == "classification" else "amounts"
        goal = f"{self.target.name} is predicted, as {how}: {_values(self.target)}."
        said += [f"{goal} The inputs are {_listed(self.inputs)}."]
        if self.client is not None:
            said += [f"Each value of {self.client.name} is a client: {_values(self.client)}."]
            if len(self.client.values) == 1:
                said += ["With one client alone nothing is federated: give another --client-column, or none."]
        else:
            said += ["Clients are made by dividing the rows. If a column says whose a row is, give --client-column."]
        if alike := ", ".join(column.name for column in self.left if len(column.values) < 2):
            said += [f"Left out of `input`, for rows do not differ there: {alike}."]
        if texts := [c for c in self.left if c.words and not c.dates and len(c.values) > 1]:
            said += [f"Left out of `input`, for names and free text look like this: {_listed(texts)}."]
        if dates := [column for column in self.left if column.dates]:
            said += [
                f"Left out of `input`, for each date would be a column of its own: {_listed(dates)}. Numbers may be "
                "made of them, such as the month, or the days since the first."
            ]
        if gaps := sum(column.gaps for column in self.inputs):
            said += [f"Gaps in the inputs, which a run fills by the median or the most frequent text: {gaps:,}."]
        if ids := ", ".join(column.name for column in self.inputs if self._numbers_rows(column)):
            said += [f"{ids} has another whole number in each row: if it numbers the rows, take it out of `input`."]
        if self.telling:
            which, goal = ", ".join(self.telling), self.target.name
            said += [f"Each value of {which} goes with one {goal}: if it is made of it, take it out of `input`."]
        for name, value, rows in self.nines:
            said += [f"{name} is {value} in {rows:,} rows, far from its other numbers: leave a gap empty."]
        for column in (self.target, *self.inputs):
            if column.almost:
                words = ", ".join(map(repr, sorted(column.words)[:FEW]))
                said += [f"{column.name} is text, since not all of it are numbers: mend {words}, or leave it empty."]
        if not self.target.number and len(self.target.values) == self.rows:
            said += [f"{self.target.name} has another text in each row, so no class can be learned: predict another."]
        for what, column in (("classes", self.target), ("clients", self.client)):
            if column is not None and (twice := " and ".join(map(repr, spelled_alike(column.values)))):
                said += [f"{twice} are two {what} of {column.name}: if they are one, spell them alike."]
        every = *self.inputs, *self.left
        return said + [f"{column.name} has decimal commas: write points." for column in every if column.commas]

    def _numbers_rows(self, column: Column) -> bool:
        whole = all(value.strip().isdecimal() for value in column.values)
        return whole and FEW < len(column.values) == self.rows


class Rows(NamedTuple):
    """The cells of a table as text, a gap as "": the columns' names, and each row with its place, in words."""

    names: list[str]
    found: Sequence[tuple[str, Sequence[str]]]


def glance(path: Path, columns: Columns) -> Glance:
    """Look at a .csv or .parquet file, or a folder of such. Raises UserError for a file that is no such table or no
    UTF-8, for a table without rows, for columns that are not there or have two roles, for a target or a client that is
    missing in a row, for a target that is the same in all, for a client that has one row alone in all, and without
    pyarrow.
    """
    where = str(path)
    names, found = _rows(path, columns)
    roles = chosen(where, names, columns, beside=(SPLIT,))
    if not found:
        raise UserError(f"{where}: the table has no row: give one for each sample.")
    cells = {name: [row[place] if place < len(row) else "" for _, row in found] for place, name in enumerate(names)}
    columns_of = {name: _column(name, own) for name, own in cells.items()}
    if roles.marks(names):
        refuse_words(where, cells[SPLIT])
    target, client = columns_of[roles.target], None if roles.client is None else columns_of[roles.client]
    for what, column in (("is predicted", target), ("names the client", client)):
        if column is not None and column.gaps:
            first = found[column.first][0]
            cell = cells[column.name][column.first]
            raise incomplete(where, f"{column.name}, which {what}", column.gaps, len(found), first, cell)
    if len(target.values) == 1:
        raise UserError(f"{where}: {target.name} is {next(iter(target.values))!r} in all rows: predict another column.")
    if client is not None and len(client.values) == len(found) > 1:
        raise UserError(f"{where}: {client.name} differs in all rows, and a client needs several: name another column.")
    inputs = [columns_of[name] for name in roles.input]
    free = [c for c in inputs if like_free_text(len(c.values), len(found)) and not c.number | c.almost]
    left = [c for c in inputs if c.dates or c in free or len(c.values) < 2]
    if len(left) == len(inputs):
        said = ", ".join(c.said() for c in left)
        raise UserError(
            f"{where}: no column can be an input: {said} look like free text, are dates, or are the same in all rows; "
            "give a column of numbers or of few words, or write texts into a .jsonl file, one a line with its label."
        )
    inputs = [column for column in inputs if column not in left]
    goal = cells[target.name]
    telling = [c.name for c in inputs if len(found) >= ENOUGH and _tells(c, cells[c.name], goal)]
    nines = [(c.name, odd, cells[c.name].count(odd)) for c in (target, *inputs) for odd in _far(c)]
    return Glance(where, len(found), target, client, inputs, left, telling, nines)


def _rows(path: Path, columns: Columns) -> Rows:
    """The rows of a table, in the order of its files; those of a folder have the names of the files as `table_of`."""
    files = files_of(path)
    tables = [(_of_parquet if file.suffix.lower() == ".parquet" else _of_csv)(file) for file in files]
    if not path.is_dir():
        return tables[0]
    refuse_unlike(files, [table.names for table in tables])
    names, found = tables[0].names, list[tuple[str, Sequence[str]]]()
    added = marked_by(files, names, columns.client)
    for file, table in zip(files, tables, strict=True):
        places = [table.names.index(name) for name in names]
        for where, row in table.found:
            own = [row[place] if place < len(row) else "" for place in places]
            found.append((where, own if added is None else [*own, name_of(file)]))
    return Rows(names if added is None else [*names, added], found[:ROWS])


def _of_csv(path: Path) -> Rows:
    (_, names), *found = islice(rows_of(path), 1 + ROWS)
    return Rows(names, [(f"line {number} of {path.name}", row) for number, row in found])


def _of_parquet(path: Path) -> Rows:
    try:
        from pyarrow import parquet

        with parquet.ParquetFile(path) as file:
            index = (file.schema_arrow.pandas_metadata or {}).get("index_columns", [])
            names = [name for name in file.schema_arrow.names if name not in index]  # as pandas reads it
            some = next(file.iter_batches(ROWS, columns=names), None)
    except ImportError as error:
        raise UserError(f"{path}: {error.name} is needed to read it: {with_extra('data')}.") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: is no .parquet table: {str(error).splitlines()[0]}.") from None
    cells = [some.column(name).to_pylist() if some is not None else [] for name in names]
    rows = ([_text(cell) for cell in row] for row in zip(*cells, strict=True))
    return Rows(names, [(f"row {number} of {path.name}", row) for number, row in enumerate(rows, 1)])


def _text(cell: object) -> str:
    """A cell as a .csv would have it; a list of numbers is an input as a number is: another number for another list."""
    if isinstance(cell, list):
        return f"{zlib.crc32(str(cell).encode())}.5"
    return "" if cell is None else str(cell)


def _column(name: str, cells: Sequence[str]) -> Column:
    gaps = [place for place, cell in enumerate(cells) if not cell or cell in GAPS]
    values = frozenset(cells).difference(GAPS, {""})
    words = frozenset(value for value in values if not _is_number(value))
    return Column(name, values, words, len(gaps), gaps[0] if gaps else -1)


def _tells(column: Column, cells: Sequence[str], target: Sequence[str]) -> bool:
    """Whether each value of a column goes with one value of the target. Where most rows have a value of their own, this
    says nothing.
    """
    found: dict[str, str] = {}
    alike = all(found.setdefault(one, goal) == goal for one, goal in zip(cells, target, strict=True))
    return alike and 1 < len(column.values) <= len(cells) // 2 and len(set(found.values())) > 1


def _far(column: Column) -> list[str]:
    """The numbers of nines that lie farther from a column's other numbers than these from one another."""
    nines = [value for value in sorted(column.values) if NINES.fullmatch(value)]
    others = [float(value) for value in column.values.difference(nines) if column.number and value[-1:].isdigit()]
    low, high = (min(others), max(others)) if len(others) > 1 else (float("-inf"), float("inf"))
    return [value for value in nines if not 2 * low - high <= float(value) <= 2 * high - low]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return _is_truth(cell)
    return True


def _is_truth(cell: str) -> bool:
    return cell.lower() in ("true", "false")


def _listed(columns: Sequence[Column]) -> str:
    """The columns, or the first of many."""
    more = f" and {len(columns) - SHOWN:,} more" if len(columns) > SHOWN else ""
    return ", ".join(column.said() for column in columns[:SHOWN]) + more


def _values(column: Column) -> str:
    """The values, or how many there are."""
    some = sorted(column.values)
    if len(some) <= FEW:
        return ", ".join(some)
    return f"{len(some):,} different {'numbers' if column.number else 'texts'}"
