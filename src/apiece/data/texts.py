"""Text from a file: one JSON object a line, with the text, perhaps its label, and perhaps its client."""

from __future__ import annotations

import gzip
import json
import logging
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from apiece.data import sound
from apiece.data.arrays import TEST_SHARE, Dataset, held_out, numbered
from apiece.data.columns import CLIENTS, SPLIT, WORDS
from apiece.data.folders import files_of, marked_by, name_of
from apiece.data.tokens import Reading, Rows
from apiece.errors import UserError, said

TEXT = (("text",), ("premise", "hypothesis"), ("sentence1", "sentence2"))  # several fields are joined by a space
LABEL = ("label", "gold_label", "intent")
CLIENT = (*CLIENTS, "domain", "genre", "role")


def from_jsonl(
    path: str | Path,
    reading: Reading | None = None,
    name: str = "",
    text: str | None = None,
    label: str | None = None,
    client: str | None = None,
    known: np.ndarray | None = None,
) -> Dataset:
    """A .jsonl file, a .jsonl.gz, or a folder of such, as rows of tokens. Fields that are not named are looked for by
    their usual names.

    A text's client (its domain, genre or role) is what `natural` and `shards(1, by=natural)` split by, and replaces a
    label that is not there. Lines whose field `split` says neither "train" nor "test" are left out; without such a
    field, a fixed fifth is held out. `known` are the labels to be predicted, where another file gives them. Raises
    UserError for a file that is no such table.
    """
    records, reading = _records(Path(path), client), reading or Reading()
    columns = _Columns(str(path), records)
    wanted = ((text,),) if text else TEXT
    chosen = next((fields for fields in wanted if all(field in columns.names for field in fields)), None)
    if chosen is None:
        raise UserError(f"{path}: its fields are {', '.join(columns.names)}; it needs one named {text or 'text'}.")
    parts = columns.texts(SPLIT) if SPLIT in columns.names else None
    if parts is not None:
        kept = np.flatnonzero(np.isin(parts, WORDS))
        if len(kept) < len(records):
            logging.getLogger(__name__).warning(
                "%s: %d lines of other splits than train and test are left out", path, len(records) - len(kept)
            )
        columns, parts = _Columns(str(path), [records[i] for i in kept]), parts[kept]
    texts = [" ".join(words) for words in zip(*(columns.texts(field) for field in chosen))]
    owners, y = columns.named(client, CLIENT), columns.named(label, LABEL)
    y = owners if y is None else y
    predicts = reading.predicts or ("next" if columns.find(label, LABEL) is None else "label")
    if predicts == "label" and y is None:
        raise UserError(f"{path}: no line has a label; give one, or take --model opt_lm, which needs none.")
    y, known = np.zeros(len(texts)) if y is None else y, known if predicts == "label" else None
    known, codes = np.unique(y, return_inverse=True) if known is None else (known, numbered(y, known, str(path)))
    test = held_out(codes, TEST_SHARE, owners) if parts is None else parts == "test"
    if test.all() or not test.any():
        raise UserError(f"{path}: {(~test).sum()} lines to train on and {test.sum()} to test on; give some of both.")

    def read(rows: np.ndarray) -> tuple[Rows, np.ndarray, np.ndarray | None]:
        own = [texts[i] for i in np.flatnonzero(rows)]
        made = reading.whole(own) if predicts == "label" else reading.windows(own)
        return made, codes[rows][made.source], None if owners is None else owners[rows][made.source]

    (train, y_train, natural_train), (held, y_test, natural_test) = read(~test), read(test)
    if train.cut + held.cut:
        message = "%s: %d of %d texts have more than length=%d tokens, and the rest of each is left out"
        logging.getLogger(__name__).warning(message, path, train.cut + held.cut, len(texts), reading.length)
    return Dataset(
        name or Path(path).name.partition(".")[0],
        *(train.x, y_train, held.x, y_test, len(known), natural_train, natural_test),
        targets_train=train.targets,
        targets_test=held.targets,
        known=known,
        held=test if parts is None and predicts == "label" else None,
    )


def roles(path: Path, label: str | None, client: str | None) -> tuple[int, str | None, str | None]:
    """How many lines a file or a folder has, and the fields that are its texts' labels and clients, if it has any."""
    records = _records(path, client)
    columns = _Columns(str(path), records)
    return len(records), columns.find(label, LABEL), columns.find(client, CLIENT)


class _Columns:
    """The fields of all lines as columns, by name."""

    def __init__(self, path: str, records: Sequence[dict[str, Any]]):
        self.path, self.records = path, records
        self.names = list(dict.fromkeys(field for record in records for field in record))

    def texts(self, field: str) -> np.ndarray:
        """A field that every line has, as text."""
        lacking = next((i for i, record in enumerate(self.records) if _missing(record.get(field))), None)
        if lacking is not None:
            raise UserError(
                f"{self.path}: {field!r} is missing in {self.records[lacking]!r:.80}; give it in every line."
            )
        return np.array([str(record[field]) for record in self.records])

    def find(self, field: str | None, usual: Sequence[str]) -> str | None:
        """The named field, or the first of the usual ones that the file has."""
        if field is not None and field not in self.names:
            raise UserError(f"{self.path}: there is no field {field!r}, but {', '.join(self.names)}.")
        return field or next((name for name in usual if name in self.names), None)

    def named(self, field: str | None, usual: Sequence[str]) -> np.ndarray | None:
        """The column of the field that `find` finds, or None."""
        found = self.find(field, usual)
        if found is None:
            return None
        if usual is CLIENT:
            sound.refuse_alike(self.path, [record.get(found) for record in self.records])
        numbers = all(type(record.get(found)) is int for record in self.records)
        return np.array([record[found] for record in self.records]) if numbers else self.texts(found)


def _missing(value: Any) -> bool:
    """Whether a field says nothing: null, or the NaN with which tables write their gaps."""
    return value is None or value != value


def _whole(record: Any) -> bool:
    """Whether all text in a record consists of whole characters."""
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _records(path: Path, client: str | None) -> list[dict[str, Any]]:
    """The lines of a file, or of all files of a folder, which tell by their names what no line of theirs does."""
    files = files_of(path)
    each = [_lines(file) for file in files]
    if path.is_dir() and (field := marked_by(files, {name for own in each for one in own for name in one}, client)):
        each = [[{**one, field: name_of(file)} for one in own] for file, own in zip(files, each, strict=True)]
    return [one for own in each for one in own]


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        data = path.read_bytes()
        lines = (gzip.decompress(data) if path.suffix.lower() == ".gz" else data).decode("utf-8-sig").split("\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as text: {error}; save it as UTF-8.") from None
    records = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                record = json.loads(line)
            except RecursionError:
                raise UserError(f"{path}: line {number} has too many brackets in brackets; give one object.") from None
            except ValueError as error:  # no JSON, or a number of too many digits
                raise UserError(f"{path}: line {number} is no JSON ({said(error)}); give one object a line.") from None
            if "\\u" in line and not _whole(record):
                raise UserError(f"{path}: line {number} has half a character (a lone surrogate); write it as UTF-8.")
            if not isinstance(record, dict):
                raise UserError(f"{path}: line {number} is no JSON object; give one a line, with a field named text.")
            records.append(record)
    if not records:
        raise UserError(f"{path}: is empty; give one JSON object a line, with a field named text.")
    return records
