"""Tables: a .csv or .parquet file, or a frame of pandas, polars or pyarrow, one row a sample."""

from __future__ import annotations

import datetime
import logging
from dataclasses import replace
from numbers import Number
from pathlib import Path
from typing import Any

import numpy as np

from apiece.data import sound
from apiece.data.arrays import Dataset, from_arrays, listed, unread
from apiece.data.columns import (
    EVERYTHING,
    FEW,
    LEAVE,
    SPLIT,
    Chosen,
    Columns,
    chosen,
    incomplete,
    refuse_columns,
    refuse_words,
)
from apiece.data.preparing import UNKNOWN, Part, Preparation, refuse_many
from apiece.data.separated import table_of
from apiece.errors import UserError

LISTS = (list, tuple, np.ndarray)
DATES = (datetime.date, datetime.time, datetime.timedelta)


def from_table(path: str | Path, columns: Columns = EVERYTHING) -> Dataset:
    """A .parquet or .csv table: one row a sample, a label column, and a client column if the samples have owners.

    All other columns are features: numbers, lists of numbers, or text. In a column `split`, the word "test" marks test
    rows, and "train" the others.
    """
    return from_frame(table_of(Path(path), columns), Path(path).stem, columns, str(path))


def from_frame(frame: Any, name: str, columns: Columns = EVERYTHING, where: str = "", test: Any = None) -> Dataset:
    """The same of a frame in memory, with a frame of test samples if there is one.

    Features that are numbers without gaps are taken as they are. If there is text or a gap, or if the run asks for it,
    a `Preparation` makes numbers of them, which is fitted on the training samples. Raises UserError for a column that
    cannot be read.
    """
    import pandas

    where, table, test_rows = where or name, plain(frame), None
    refuse_columns(where, Columns(resize=columns.resize))
    if test is not None:
        held = plain(test)
        if sorted(held.columns) != sorted(table.columns):
            raise UserError(f"{where}: training and test samples have other columns: make them alike.")
        test_rows = np.arange(len(table) + len(held)) >= len(table)
        table = pandas.concat([table, held[table.columns.to_list()]], ignore_index=True)
    if not len(table):
        raise UserError(f"{where}: the table has no row: give one for each sample.")
    roles = chosen(where, table.columns.to_list(), columns, beside=() if test is not None else (SPLIT,))
    test_rows = _marked(where, table, roles) if test_rows is None else test_rows
    y, natural = column_of(where, table, roles.target), None
    if roles.client is not None:
        natural = column_of(where, table, roles.client, owners=True)
        if columns.client and (gone := np.flatnonzero(table[roles.client].isna())).size:
            what = f"{roles.client}, which names the client"
            raise incomplete(where, what, gone.size, len(table), f"row {gone[0]} (counted from 0)")
    kinds = {name: _kind(where, table[name]) for name in roles.input}
    if not columns.input:
        _tell_numbers_of_rows(where, table, roles.input)
    if not _wanted(table, kinds, columns):
        taken = _parts(name, _features(where, table, roles.input), y, natural, test_rows, columns.task)
        return replace(taken, columns=tuple(roles.input))
    data = _parts(name, unread(len(table)), y, natural, test_rows, columns.task)
    testing = data.held if test_rows is None else test_rows
    assert testing is not None, "without a test set from_arrays holds samples out"
    train, held = np.flatnonzero(~testing), np.flatnonzero(testing)
    kept = columns.kept if columns.kept is not None and columns.kept.is_file() else None
    made = Preparation.load(kept) if kept else _unfitted(where, table, kinds, train, columns)
    x = codes(where, table, made)
    if made.fit == "pooled":
        made = made if kept else made.fitted(x[train])
        x = made(x)
    return replace(data, x_train=x[train], x_test=x[held], preparation=made, gaps=_gaps(table, kinds))


def samples_of(path: Path, columns: Columns, made: Preparation | None) -> dict[str, np.ndarray]:
    """The arrays x_train, y_train, and x_test, y_test if its column `split` marks any, of another client's table, read
    as a run read its own. All are one client's, whom the table need not name.
    """
    where, table = str(path), plain(table_of(path, columns))
    columns = columns if columns.client in table.columns else columns._replace(client=None)
    roles = chosen(where, table.columns.to_list(), columns, beside=(SPLIT,))
    marked = _marked(where, table, roles)
    test = np.zeros(len(table), dtype=bool) if marked is None else marked
    y = column_of(where, table, roles.target)
    if made is None:
        x = _features(where, table, roles.input)
    else:
        x = codes(where, table, made)
        _tell_strangers(where, table, made, x)
        x = (made if made.fit == "pooled" else made.fitted(x[~test]))(x)
    found = {"x_train": x[~test], "y_train": y[~test]}
    return found | ({"x_test": x[test], "y_test": y[test]} if test.any() else {})


def _tell_strangers(where: str, table: Any, made: Preparation, x: np.ndarray) -> None:
    """Warn of text that the preparation has no category for: a model sees nothing of it."""
    for part, column in zip(made.parts, np.split(x, np.cumsum([part.width for part in made.parts])[:-1], axis=1)):
        if part.categories is not None and (unknown := column[:, 0] == UNKNOWN).any():
            words = sorted({str(word) for word in table[part.name][unknown]})
            logging.getLogger(__name__).warning(
                "%s, column %r: the run's own data have no %s, which counts as none of their texts (%d of %d rows)",
                where, part.name, listed(np.array(words)), unknown.sum(), len(unknown),
            )  # fmt: skip


def _tell_numbers_of_rows(where: str, table: Any, names: list[str]) -> None:
    """Warn of columns that most likely number the rows, as the index does that pandas writes into a .csv."""
    whole = [name for name in names if table[name].dtype.kind in "iu" and FEW < len(table) == table[name].nunique()]
    if whole:
        logging.getLogger(__name__).warning(
            "%s: %s has another whole number in each row: if it numbers the rows, %s.", where, ", ".join(whole), LEAVE
        )


def _marked(where: str, table: Any, roles: Chosen) -> np.ndarray | None:
    """The mask of the rows that the column `split` marks for testing; None if it is absent or has another role."""
    if not roles.marks(table.columns):
        return None
    words = np.where(table[SPLIT].isna(), "", table[SPLIT].astype(str))
    refuse_words(where, words)
    return words == "test"


def is_frame(data: Any) -> bool:
    """Whether this is a table in memory: of pandas, or what can become one."""
    kind = type(data)
    return hasattr(kind, "columns") and (hasattr(kind, "to_pandas") or hasattr(kind, "dtypes"))


def is_plain(frame: Any) -> bool:
    """Whether a frame has numbers alone, without gaps."""
    table = plain(frame)
    return all(dtype.kind in "buif" for dtype in table.dtypes) and not table.isna().to_numpy().any()


def plain(frame: Any) -> Any:
    """Any frame as one of pandas, whose columns have texts for names."""
    if hasattr(frame, "compute") or not (hasattr(frame, "to_pandas") or hasattr(frame, "reset_index")):
        raise UserError(f"data is a {type(frame).__name__}, which is not read yet: collect() or compute() it first.")
    table = frame.to_pandas() if hasattr(frame, "to_pandas") else frame
    table = table.reset_index(drop=True)
    table.columns = [str(column) for column in table.columns]
    return table


def column_of(where: str, table: Any, name: str, owners: bool = False) -> np.ndarray:
    """A column of labels or owners, with None for pandas' own missing value, which `==` cannot compare. Raises
    UserError for labels that are missing.
    """
    values, gone = table[name].to_numpy(), table[name].isna().to_numpy()
    if len(gone) and gone.all():
        raise UserError(f"{where}, column {name!r}: it has no value at all: name another column.")
    if values.dtype == object and any(isinstance(value, LISTS) for value in values):
        if owners:
            raise UserError(f"{where}, column {name!r}: it holds lists: name a column of words or of numbers.")
        try:
            return np.stack(list(values))
        except (ValueError, TypeError):
            raise UserError(
                f"{where}, training labels: they are lists of several lengths; give one class a sample."
            ) from None
    if values.dtype == object and gone.any():
        values = values.copy()
        values[gone] = None
    if not owners:
        sound.present(f"{where}, column {name!r}", values)
    return values


def codes(where: str, table: Any, made: Preparation) -> np.ndarray:
    """The columns that a preparation reads, as the codes [n, c] that it takes."""
    lacking = [part.name for part in made.parts if part.name not in table.columns]
    if lacking:
        raise UserError(f"{where}: it lacks the columns {', '.join(lacking)}, which the run's own data have: add them.")
    return np.concatenate([_coded(where, table[part.name], part) for part in made.parts], axis=1)


def _coded(where: str, column: Any, part: Part) -> np.ndarray:
    import pandas

    if part.categories is None:
        block = _numbers(where, column, part.width)
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            sound.finite(f"{where}, column {part.name!r}", np.where(np.isnan(block), 0, block).astype(np.float32))
        return block
    gone = column.isna().to_numpy()
    words = column.astype(object).map(str).to_numpy(dtype=object)
    numbers = pandas.Index(list(part.categories), dtype=object).get_indexer(words)  # UNKNOWN where a word is not there
    return np.where(gone, np.nan, numbers)[:, None]


def _numbers(where: str, column: Any, width: int) -> np.ndarray:
    """A column of numbers, or of lists of so many numbers, as float64 [n, width] with NaN for gaps."""
    lists = width > 1 or _kind(where, column) == "list"
    try:
        if lists:
            block = sound.numbers(np.stack(column.to_list())).reshape(len(column), -1).astype(np.float64)
            if block.shape[1] != width:
                raise ValueError(f"lists of {block.shape[1]} numbers, not of {width}")
            return block
        return column.to_numpy(dtype=np.float64, na_value=np.nan)[:, None]
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{where}, column {column.name!r}: features must be numbers or lists of one length ({error}); {LEAVE}."
        ) from None


def _wanted(table: Any, kinds: dict[str, str], columns: Columns) -> bool:
    """Whether these columns need a preparation, or the run asks for one."""
    if columns.prepare is not None or columns.fit is not None:
        return columns.prepare != "plain"
    return "text" in kinds.values() or bool(_gaps(table, kinds))


def _gaps(table: Any, kinds: dict[str, str]) -> int:
    return int(table[list(kinds)].isna().to_numpy().sum())


def _unfitted(where: str, table: Any, kinds: dict[str, str], train: np.ndarray, columns: Columns) -> Preparation:
    """The preparation of these columns, with the categories of the training rows, before it is fitted."""
    parts = []
    for name, kind in kinds.items():
        column = table[name].iloc[train]
        if column.isna().all():
            raise UserError(f"{where}, column {name!r}: no training row has a value there: {LEAVE}.")
        words = sorted(set(column[column.notna()].astype(object).map(str))) if kind == "text" else None
        width = len(column.iloc[0]) if kind == "list" else 1
        parts.append(Part(name, width, None if words is None else tuple(words)))
    refuse_many(where, parts, len(train), columns.prepare)
    return Preparation(tuple(parts), columns.prepare or "onehot", columns.fit or "pooled")


def _kind(where: str, column: Any) -> str:
    """Whether a column has numbers, lists or text; raises UserError for dates, and for values of several kinds."""
    import pandas

    def refuse(what: str, how: str) -> UserError:
        return UserError(f"{where}, column {column.name!r}: {what}: {how}, or {LEAVE}.")

    if isinstance(column.dtype, pandas.CategoricalDtype):
        return "text"
    if column.dtype.kind in "buif":
        return "number"
    if column.dtype.kind in "mM" or isinstance(column.dtype, pandas.PeriodDtype):
        raise refuse("it has dates or times", "make numbers of them, such as .dt.month or .dt.total_seconds()")
    found = sorted({type(value) for value in column[column.notna()]}, key=lambda kind: kind.__name__)
    if not found:
        raise refuse("it has no value at all", "fill it")
    for name, kinds in (("text", (str,)), ("list", LISTS), ("number", (Number,))):
        if all(issubclass(kind, kinds) for kind in found) and complex not in found:
            return name
    if any(issubclass(kind, DATES) for kind in found):
        raise refuse("it has dates or times", "make numbers of them")
    kinds = ", ".join(kind.__name__ for kind in found)
    raise refuse(f"it has values of type {kinds}", "give numbers, lists of one length, or text alone")


def _features(where: str, table: Any, columns: list[str]) -> np.ndarray:
    """Columns of numbers, or of lists of numbers, side by side: [n, d]."""
    blocks = []
    for column in columns:
        try:
            block = sound.numbers(np.stack(table[column].to_list()).reshape(len(table), -1))
            with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused below
                blocks.append(block.astype(np.float32))
        except (ValueError, TypeError) as error:
            raise UserError(
                f"{where}: features must be numbers or lists of one length ({error}); drop or encode the others, "
                f"such as {column!r}."
            ) from None
        sound.finite(f"{where}, column {column!r}", blocks[-1])
    return np.concatenate(blocks, axis=1)


def _parts(
    name: str, x: np.ndarray, y: np.ndarray, natural: np.ndarray | None, test: np.ndarray | None, task: str
) -> Dataset:
    """The data set of these samples, of which a mask marks those for testing."""
    if test is None:
        return from_arrays(name, x, y, natural_train=natural, task=task)
    owners = (None, None) if natural is None else (natural[~test], natural[test])
    return from_arrays(name, x[~test], y[~test], x[test], y[test], *owners, task=task)
