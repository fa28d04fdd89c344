"""The rows of a .csv file, as a first look at it and the reading of it for a run both take them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from apiece.data.columns import refuse_names
from apiece.errors import UserError

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
