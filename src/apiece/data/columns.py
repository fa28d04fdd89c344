"""What a run says of its data: which columns it reads, how large its images are, how a table becomes numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from apiece.data.tasks import AUTO
from apiece.errors import UserError, nearest

TARGETS = ("label", "fine_label", "labels", "target", "targets", "y")  # usual names, the most usual first
CLIENTS = ("client", "client_id", "writer_id", "user_id", "user")
PREPARATION = "preparation.json"  # a run's own copy of how its table became numbers
PARTS = ("train", "training", "test", "testing", "val", "valid", "validation")  # what people call parts of data
SPLIT, WORDS = "split", ("train", "test")  # the column that says which rows are for testing, and its words
MOST = 1000  # categories of one column that may become as many columns
ODD = 0.1  # the share of words among a column's different values up to which it was meant to be of numbers
FEW = 20  # up to so many, a column of text may have as many different words as it likes
LEAVE = "leave it out, by naming the others: --input a \"b c\", or input=[...]"


class Columns(NamedTuple):
    """The settings of a run that say how its data are read; each left at its default unless the run says it.

    `input` are the columns that the model reads (all others, if empty), `target` is predicted, `client` names each
    sample's owner. `resize` is (height, width) of images. `prepare` and `fit`: see `Preparation`. `kept` is the file of
    a preparation that was fitted before. `task` is what is learned.
    """

    input: tuple[str, ...] = ()
    target: str | None = None
    client: str | None = None
    resize: tuple[int, int] | None = None
    prepare: Literal["onehot", "ordinal", "plain"] | None = None
    fit: Literal["pooled", "client"] | None = None
    kept: Path | None = None
    task: str = AUTO

    def text(self, where: str) -> tuple[str | None, str | None, str | None]:
        """The fields (text, label, client) of a file of texts; UserError if several are to be its text."""
        if len(self.input) > 1:
            raise UserError(f"{where} is a file of texts: name one field by input, not {len(self.input)}.")
        return (*self.input, None)[0], self.target, self.client


EVERYTHING = Columns()  # where nothing is said: all columns, by their usual names


class Chosen(NamedTuple):
    """The columns of one table by their roles."""

    input: list[str]
    target: str
    client: str | None

    def marks(self, names: Collection[str]) -> bool:
        """Whether the table has a column `split` that says which rows are for testing, and has no other role."""
        return SPLIT in names and SPLIT not in (*self.input, self.target, self.client)


def chosen(
    where: str,
    names: Sequence[str],
    columns: Columns,
    targets: Sequence[str] = TARGETS[:1],
    clients: Sequence[str] = CLIENTS[:1],
    beside: Sequence[str] = (),
) -> Chosen:
    """The columns that are read: those that the run names, otherwise the usual ones among `targets` and `clients`;
    those `beside` are no inputs unless they are named. Raises UserError if one does not exist or has two roles.
    """
    refuse_names(where, names)
    for setting, name in (
        ("target_column", columns.target),
        ("client_column", columns.client),
        *(("input", name) for name in columns.input),
    ):
        if name is not None and name not in names:
            if setting == "input" and set(apart := name.split(",")) <= {*names}:
                raise UserError(f"{where}: {name!r} is no column: name columns apart, as in --input {' '.join(apart)}.")
            raise UserError(f"{where}: there is no column {name!r}, which {setting} names; {nearest(name, names)}")
    client = columns.client or next((name for name in clients if name in names), None)
    target = columns.target or next((name for name in targets if name in names and name != client), None)
    given = columns.input or [name for name in names if name not in (target, client, *beside)]
    if target is None or not given:
        raise UserError(
            f"{where}: columns are {', '.join(names)}; it needs {targets[0]!r} or another target, which target_column "
            "names (--target-column), and a feature."
        )
    roles = [target, *given, *([client] if client else [])]
    if double := next((name for i, name in enumerate(roles) if name in roles[:i]), None):
        raise UserError(
            f"{where}: column {double!r} is named twice among target, inputs and client: give each one role."
        )
    return Chosen(list(given), target, client)


def like_free_text(count: int, rows: int) -> bool:
    """Whether so many different texts in a column of so many rows look like names, dates or free text."""
    return count > MOST or count > max(FEW, rows // 2)


def incomplete(where: str, what: str, gaps: int, rows: int, first: str, cell: str = "") -> UserError:
    """The error for gaps in a column that no row may lack; `what` is its name and what it is for, `first` the place of
    the first gap, and `cell` the text there that is read as one.
    """
    read = f" ({cell!r} is read as a gap; if it is a value, write it otherwise)" if cell else ""
    return UserError(
        f"{where}: {what}, is missing in {gaps:,} of {rows:,} rows, first in {first}{read}: fill these rows, or drop "
        "them."
    )


def refuse_words(where: str, words: Iterable[str]) -> None:
    """Raise UserError if the column `split` has another word than train and test, or a gap, which is ""."""
    if odd := sorted({*words}.difference(WORDS)):
        found = ", ".join(map(repr, odd[:3])) + (", ..." if len(odd) > 3 else "")
        raise UserError(
            f"{where}, column {SPLIT!r}: it says by the words 'train' and 'test' which rows are for testing, and has "
            f"{found}: write these two, drop the other rows, or rename the column if it is an input."
        )


def coded(words: Collection[str]) -> bool:
    """Whether a column's cells are whole numbers of which some are written as codes are, 007 or 01."""
    cells = [word.strip() for word in words]
    return all(cell.isdecimal() for cell in cells) and any(cell[0] == "0" != cell for cell in cells)


def spelled_alike(words: Iterable[str]) -> list[str]:
    """Words that differ in case or in spaces around them alone, the first of those that there are."""
    same: dict[str, list[str]] = {}
    for word in sorted(words):
        same.setdefault(word.strip().casefold(), []).append(word)
    return next((found for found in same.values() if len(found) > 1), [])


def no_numbers(words: Collection[str]) -> list[str]:
    """Those of a column's different values that are no numbers."""
    return [word for word in words if not _is_number(word)]


def _is_number(word: str) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


def refuse_names(where: str, names: Sequence[str]) -> None:
    """Raise UserError if two columns have the same name, or if names are not separated by commas."""
    if len(names) == 1 and (mark := next((mark for mark in (";", "\t", "|") if mark in names[0]), None)):
        raise UserError(f"{where}: its columns are separated by {mark!r}: save it with commas between them.")
    if (twice := next((name for name, count in Counter(names).items() if count > 1), None)) is not None:
        what = f"are named {twice!r}" if twice else "have no name"
        raise UserError(f"{where}: two columns {what}: give each its own name.")


def refuse_columns(where: str, columns: Columns, images: bool = False) -> None:
    """Raise UserError if a run names columns, a preparation or a size of images for data that have none."""
    named = {
        "input": columns.input, "target_column": columns.target, "client_column": columns.client,
        "prepare": columns.prepare, "fit": columns.fit, "resize": None if images else columns.resize,
    }  # fmt: skip
    if setting := next((name for name, value in named.items() if value), None):
        what = "images" if setting == "resize" else "tables with named columns"
        raise UserError(f"{setting} is for {what}, and {where} is none: leave it out.")


def size_of(text: str | None) -> tuple[int, int] | None:
    """(height, width) of `32` or `32x24`; raises UserError for another text."""
    if text is None:
        return None
    sides: list[Any] = text.lower().split("x")
    if len(sides) > 2 or not all(side.isdecimal() and 0 < int(side) <= 1 << 14 for side in sides):
        raise UserError(f"resize={text!r} is no size of images: give 32, or height and width as in 32x24.")
    return int(sides[0]), int(sides[-1])
