"""metrics.jsonl, one line per round; every checkpoint holds the hash of the lines before it.

The round at which a run was ended early has a second line, with what is measured at the end: of two, the later counts.
Nothing vouches for lines after the newest checkpoint: a run that resumes writes them again. Earlier lines must be as
they were written: a run does not continue if rounds are lost, and a report says which ones these are.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from apiece.errors import UserError
from apiece.storage import checkpoint_files
from apiece.system import files

NAME = "metrics.jsonl"
VALUES = "client_metrics.jsonl"  # one line per round that was measured: every client's values
UNREADABLE = (ValueError, KeyError, TypeError, OverflowError, RecursionError)  # raised by a line that is no round


class Log:
    """The log of a running run, after the lines that exist: each line is hashed once."""

    def __init__(self, folder: Path, lines: Sequence[bytes] = (), name: str = NAME) -> None:
        self._path, self._hash = folder / name, hashlib.sha256(b"".join(lines))

    @classmethod
    def rewound(cls, folder: Path, lines: Sequence[bytes], name: str = NAME) -> Log:
        """The log with exactly these lines."""
        if lines or name == NAME or (folder / name).exists():
            files.atomic_write(folder / name, b"".join(lines))
        return cls(folder, lines, name)

    def append(self, info: Mapping[str, Any]) -> None:
        """Write one round."""
        there, data = self._path.exists(), line(info)
        file = files.open_existing(self._path) if there else files.create(self._path)
        try:
            files.pwrite(file, data, self._path.stat().st_size if there else 0)
        finally:
            files.close(file)
        self._hash.update(data)

    def settle(self) -> str:
        """The hash of all lines, once they are on the disk: for a checkpoint that relies on them."""
        if self._path.exists():
            file = files.open_existing(self._path)
            try:
                files.fsync(file)
            finally:
                files.close(file)
            files.sync_folder(self._path.parent)
        return self._hash.hexdigest()


def values_kept(folder: Path, rounds: int) -> list[bytes]:
    """The lines of clients' values of the first `rounds` rounds. Folders from before there were such lines have none,
    and a line that cannot be read is left out: what a run does depends on none of them.
    """
    found = []
    for text in _lines(folder / VALUES):
        try:
            found += [text] if round_of(text)["round"] <= rounds and text.endswith(b"\n") else []
        except UNREADABLE:
            continue
    return found


def kept(folder: Path, rounds: int, digest: str | None) -> list[bytes]:
    """The log's lines of the first `rounds` rounds, as their checkpoint has them; UserError if they are not there.

    A checkpoint from before logs were hashed has no digest: then all readable lines of these rounds.
    """
    if digest is None:
        return _readable(folder / NAME, rounds)
    if lost := _damage(folder, rounds, digest):
        raise UserError(f"{lost}.")
    return _lines(folder / NAME)[:rounds]


def damage(folder: Path) -> str:
    """What a run's log lacks: rounds that its newest checkpoint relies on, or between others; "" for nothing."""
    rounds = checkpoint_files.done(folder)
    try:
        digest = checkpoint_files.metadata(checkpoint_files.head(checkpoint_files.path_of(folder, rounds))).get("log")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        digest = None  # no checkpoint, a torn one, or one that the running run has just removed
    return _damage(folder, rounds, digest) if digest is not None else _lacks(folder, rounds)


def logged(path: Path) -> Iterator[dict[str, Any]]:
    """The rounds of a metrics.jsonl, line by line, without a last line that a crash cut off; UserError if another line
    cannot be read.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            yield round_of(text)
        except UNREADABLE as error:
            if number == len(lines):
                return
            raise UserError(f"{path}, line {number}, is not a round's metrics: mend or delete that line.") from error


def line(info: Mapping[str, Any]) -> bytes:
    """A round as its line of metrics.jsonl."""
    return f"{json.dumps(without_infinities(info), allow_nan=False)}\n".encode()


def round_of(text: str | bytes) -> dict[str, Any]:
    """The inverse of `line`: null is NaN, because JSON has no other word for numbers that are not finite."""
    row = json.loads(text)
    row["round"] = int(row["round"])
    return _measured(row)


def without_infinities(value: Any) -> Any:
    """The value with null for numbers that are not finite, which JSON cannot express."""
    if isinstance(value, Mapping):
        return {key: without_infinities(part) for key, part in value.items()}
    if isinstance(value, list):
        return [without_infinities(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _measured(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _measured(part) for key, part in value.items()}
    return math.nan if value is None else value


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True) if path.is_file() else []


def _readable(path: Path, rounds: int) -> list[bytes]:
    found: list[bytes] = []
    for info in logged(path) if rounds else ():
        found += [line(info)] if info["round"] <= rounds else []
        if info["round"] >= rounds:  # a crash may have damaged later lines
            break
    return found


def _damage(folder: Path, rounds: int, digest: str) -> str:
    if hashlib.sha256(b"".join(_lines(folder / NAME)[:rounds])).hexdigest() == digest:
        return ""
    return _lacks(folder, rounds) or f"{folder / NAME} is not as it was written: something in it was changed"


def _lacks(folder: Path, rounds: int) -> str:
    """Which rounds, up to `rounds` and the last one present, have no readable line; "" for none."""
    path, found = folder / NAME, set[int]()
    for text in _lines(path):
        try:
            found.add(round_of(text)["round"])
        except UNREADABLE:
            continue
    if rounds and not found:
        return f"{path} {'is empty' if path.is_file() else 'is missing'}, though rounds were done"
    ends = [0, *sorted(found), max(rounds, *found, 0) + 1]
    gaps = [(a + 1, b - 1) for a, b in pairwise(ends) if b - a > 1]
    told = ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in gaps)
    several = sum(b - a + 1 for a, b in gaps) > 1
    return f"{path} lacks round{'s' if several else ''} {told}" if gaps else ""
