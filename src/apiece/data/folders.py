"""A folder of files of one kind: tables, texts or arrays.

The name of a file says whose its samples are, or whether they are for testing, unless the samples themselves do.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from os.path import isdir  # unlike Path's own, it may be asked for a name that no file can have
from pathlib import Path

from apiece.data.columns import CLIENTS, PARTS, SPLIT, WORDS
from apiece.errors import UserError

TABLES, JSONL, ARRAYS = (".csv", ".parquet"), (".jsonl", ".jsonl.gz"), (".npz",)  # how their names end
READ = (*ARRAYS, *TABLES, *JSONL)  # those of all files that are read


def kind_of(path: Path) -> tuple[str, ...] | None:
    """Which of TABLES, JSONL and ARRAYS a file is, by how its name ends, in small letters or capitals, or the files of
    a folder that has no other folder; None for all else. Raises UserError for files of two kinds.
    """
    files = files_of(path)
    return _kind(files[0]) if files else None


def files_of(path: Path) -> list[Path]:
    """The files that a path stands for: itself, or those of a folder, sorted by name; none of a folder that has other
    folders. Raises UserError for files of two kinds, two of one name, and parts of data other than train and test.
    """
    if not isdir(path):
        return [path]
    within = [one for one in sorted(path.iterdir()) if not one.name.startswith((".", "_"))]
    files = [one for one in within if one.name.lower().endswith(READ)]
    if any(one.is_dir() for one in within):
        return []
    if odd := next((one for one in files if _kind(one) is not _kind(files[0])), None):
        raise UserError(f"{path}: {files[0].name} and {odd.name} are of two kinds: keep files of one kind there.")
    if twice := next((b for a, b in pairwise(sorted(map(name_of, files))) if a == b), None):
        raise UserError(f"{path}: two files are named {twice!r}: leave one of them out.")
    parts = [one for one in files if name_of(one).lower() in PARTS]
    if len(parts) > 1 and {*map(name_of, files)} != {*WORDS}:
        raise UserError(
            f"{path}: {', '.join(one.name for one in parts)} seem to be parts of the data, and no clients: name them "
            "train and test, and keep no others there."
        )
    return files


def name_of(path: Path) -> str:
    """The name of a file that is read, without its ending."""
    return path.name[: -len(next(end for end in READ if path.name.lower().endswith(end)))]


def marked_by(files: Sequence[Path], names: Collection[str], client: str | None) -> str | None:
    """The column or field that the names of a folder's files become: whether a sample is for testing, where they are
    train and test, or else its client; None where one of theirs, by these names, says so: `client`, if one was named.
    """
    name = SPLIT if {*map(name_of, files)} == {*WORDS} else CLIENTS[0]
    other = name == CLIENTS[0] and client not in (None, name)
    return None if name in names or other else name


def _kind(file: Path) -> tuple[str, ...] | None:
    return next((kind for kind in (TABLES, JSONL, ARRAYS) if file.name.lower().endswith(kind)), None)
