"""Tables in files: the rows of a .csv, as a first look and a run both take them, and what is read as a frame.

A folder of tables is one table (`apiece.data.folders`).
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from apiece.data.columns import CLIENTS, TARGETS, Columns, coded, refuse_names
from apiece.data.folders import files_of, marked_by, name_of
from apiece.data.tasks import REAL
from apiece.errors import UserError, with_extra

END = "\x1e"  # read behind the file: a row of its own, unless a double quote is still open
LONGEST = 1 << 30  # characters of a cell; the csv module takes fewer unless it is told


def rows_of(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(number of its last line in the file, cells) of each row: first the names of the columns, then the samples.
    Raises UserError for a file that cannot be read, for two columns of one name, for a double quote that is not closed,
    and for a row with more cells than there are names.
    """
    where, names, last, usual = str(path), list[str](), 0, csv.field_size_limit()
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(chain(file, [END]))
            for row in reader:
                if row == [END]:
                    break
                if row and row[-1].endswith(END):
                    raise UserError(
                        f"{where}: the row that begins in line {last + 1} has a double quote that is never closed: "
                        "close it, or leave it out."
                    )
                last = reader.line_num
                if not row or (len(row) == 1 and row[0].isspace()):  # pandas leaves these out
                    continue
                if not names:
                    refuse_names(where, row)
                    row = names = [name or f"Unnamed: {place}" for place, name in enumerate(row)]  # as pandas names it
                    refuse_names(where, names)
                    csv.field_size_limit(LONGEST)
                if len(row) > len(names):
                    raise UserError(
                        f"{where}, line {last}: it has {len(row)} cells, and there are {len(names)} columns: put text "
                        "that has commas in double quotes."
                    )
                yield last, row
    except UnicodeDecodeError:
        raise UserError(f"{where}: its letters are not encoded as UTF-8: save it as UTF-8.") from None
    except csv.Error:
        line = f"{where}, line {last + 1}"
        raise UserError(f"{line}: a cell is too long: close its double quotes, or shorten it.") from None
    except OSError as error:
        raise UserError(f"{where}: cannot be read ({error.strerror}): give a file that you may read.") from None
    finally:
        csv.field_size_limit(usual)
    if not names:
        raise UserError(f"{where}: the file is empty: give a line of names, and one row for each sample.")


def table_of(path: Path, columns: Columns) -> Any:
    """A .parquet or .csv file as a frame of pandas, or all of a folder. Owners and labels of a .csv are text where a
    number would not say how they are written. Raises UserError for a file that is no such table, for a client
    without a row, and for files whose columns are not the same.
    """
    files = files_of(path)
    text = {name for file in files if file.suffix.lower() == ".csv" for name in _texts(file, columns)}
    frames = [_read(file, text) for file in files]
    if not path.is_dir():
        return frames[0]
    import pandas

    refuse_unlike(files, [frame.columns for frame in frames])
    if (name := marked_by(files, frames[0].columns, columns.client)) is not None:
        if empty := next((file for file, frame in zip(files, frames, strict=True) if not len(frame)), None):
            raise UserError(f"{empty}: the table has no row: give one for each sample, or leave the file out.")
        frames = [frame.assign(**{name: name_of(file)}) for file, frame in zip(files, frames, strict=True)]
    return pandas.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)


def refuse_unlike(files: Sequence[Path], names: Sequence[Collection[str]]) -> None:
    """Raise UserError if the tables of a folder have other columns than its first, in whatever order."""
    first, *others = zip(files, names, strict=True)
    for file, own in others:
        if strange := sorted({*map(str, own)} ^ {*map(str, first[1])}):
            raise UserError(
                f"{file.parent}: {first[0].name} and {file.name} have not the same columns, of which only one has "
                f"{strange[0]!r}: make them alike."
            )


def _read(path: Path, text: Iterable[str]) -> Any:
    try:
        import pandas

        if path.suffix.lower() == ".parquet":
            return pandas.read_parquet(path)
        return pandas.read_csv(path, dtype=dict.fromkeys(text, object))
    except ImportError as error:
        raise UserError(f"{path}: {error.name} is needed to read it: {with_extra('data')}.") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: is no {path.suffix} table: {str(error).splitlines()[0]}.") from error


def _texts(path: Path, columns: Columns) -> list[str]:
    """Those of the columns of owners and labels that are read as text: owners that are no numbers as programs write
    them, and labels that are codes. All rows of the file are looked at, for pandas renames columns, and takes a row
    with a cell too many in ways of its own.
    """
    rows = rows_of(path)
    _, names = next(rows)
    client, target = columns.client or CLIENTS[0], columns.target or TARGETS[0]
    cells = {name: set[str]() for name in (client, target) if name in names}
    places = [(names.index(name), own) for name, own in cells.items()]
    for _, row in rows:
        for place, own in places:
            own.add(row[place] if place < len(row) else "")
    text = [client] if client in cells and not _are_numbers(cells[client]) else []
    return [*text, target] if target in cells and columns.task not in REAL and coded(cells[target]) else text


def _are_numbers(cells: set[str]) -> bool:
    """Whether cells are numbers that are written as a program writes them, so that no two of them are one."""
    for kind in (int, float):
        try:
            if all(str(kind(cell)) == cell.strip() for cell in cells):
                return True
        except ValueError:
            pass
    return False
