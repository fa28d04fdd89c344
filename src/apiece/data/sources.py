"""Where samples come from: named data sets, files and folders, each read as one `Dataset`."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from apiece.data.archives import KEYS, archive
from apiece.data.arrays import Dataset, from_arrays
from apiece.data.catalog import SOURCES, Source, source_of
from apiece.data.columns import EVERYTHING, WORDS, Columns, refuse_columns
from apiece.data.folders import ARRAYS, JSONL, READ, TABLES, files_of, kind_of, name_of
from apiece.data.frames import from_table
from apiece.data.hub import from_huggingface
from apiece.data.images import from_folder, resized
from apiece.data.items import given
from apiece.data.texts import from_jsonl
from apiece.errors import UserError, meant, nearest

OWNERS, WRITERS = ("natural_train", "natural_test"), ("writer_train", "writer_test")


def load(name: str, data_dir: str | Path | None = None, reading: Any = None, columns: Columns = EVERYTHING) -> Dataset:
    """A named data set of `apiece.data.catalog`, or the path of an .npz, .parquet, .csv or .jsonl file, of a folder
    of such files, one for each client, or of a folder of images.

    A name is looked for as NAME.npz (text: NAME.jsonl) in `data_dir`, then in the folder that APIECE_DATA names, then
    with the `datasets` package; a UserError says which file to put where. `reading` says how text becomes tokens, and
    `columns` which columns of a table are read, and how.

    >>> load("digits")
    Dataset('digits', train=1437, test=360, shape=(8, 8), classes=10)
    """
    source = source_of(name)
    if source is None:
        return _from_path(name, reading, columns)
    refuse_columns(source.name, columns, images=bool(source.shape))
    if source.name == "digits":
        return _digits(source, columns)
    folders = folders_of(data_dir)
    for path in (folder / file for folder in folders for file in source.files):
        if path.is_file():
            if path.name.endswith(JSONL):
                return from_jsonl(path, reading)
            if path.stem.replace("_", "-") != source.name:
                logging.getLogger(__name__).warning("%s: %s is a part of the whole set", source.name, path.name)
            measured = source.mean, source.std, source.classes
            return from_npz(path, path.stem.replace("_", "-"), *measured, columns.resize)
    return _from_hub(source, folders, columns)


def folders_of(data_dir: str | Path | None) -> list[Path]:
    """Where named data sets are looked for; raises UserError if `data_dir` is no folder."""
    if data_dir and not Path(data_dir).is_dir():
        raise UserError(f"--data-dir {data_dir}: there is no such folder: give the one that has the data sets.")
    return [Path(folder) for folder in (data_dir, os.environ.get("APIECE_DATA")) if folder]


def from_npz(
    path: str | Path,
    name: str = "",
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    classes: int | None = None,
    resize: tuple[int, int] | None = None,
) -> Dataset:
    """A file of arrays x_train, y_train and perhaps x_test, y_test and client ids natural_train, natural_test (or
    writer_...). `mean`, `std` and `classes`, which are not in the file: see `from_arrays`. `resize`: (height, width) of
    images.
    """
    with archive(path) as stored:
        _refuse_lacking(path, stored.files, KEYS[:2])

        def get(*keys: str) -> Any:
            return next((stored[key] for key in keys if key in stored.files), None)

        y, y_test = stored["y_train"], get("y_test")
        x = resized(str(path), stored["x_train"], y, resize)
        x_test = resized(str(path), get("x_test"), y_test, resize)
        owner, owner_test = (get(*names) for names in zip(OWNERS, WRITERS, strict=True))
        return from_arrays(name or Path(path).stem, x, y, x_test, y_test, owner, owner_test, mean, std, classes)


def _refuse_lacking(path: str | Path, found: list[str], wanted: Sequence[str]) -> None:
    if not {*wanted} <= {*found}:
        held = ", ".join(found) or "no array"
        raise UserError(f"{path}: holds {held}; it needs x_train and y_train, and x_test, y_test if any.")


def _digits(source: Source, columns: Columns) -> Dataset:
    """scikit-learn's 8x8 digits, levels 0 .. 16 stored as uint8: round(x 255 / 16); a fixed fifth is for test. They are
    read from its file of 64 levels and a class a line: importing scikit-learn takes as long as importing torch.
    """
    package = find_spec("sklearn")
    assert package is not None and package.origin is not None, "a dependency"
    table = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", int, delimiter=",")
    images, target = np.rint(table[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8), table[:, -1]
    data = from_arrays(source.name, resized(source.name, images, target, columns.resize), target, classes=10)
    return replace(data, held=None)  # its training samples are numbered without the others


def _from_path(name: str, reading: Any, columns: Columns) -> Dataset:
    path = Path(name)
    folder, there = os.path.isdir(path), os.path.exists(path)
    kind = kind_of(path) if there else None
    if kind is TABLES:
        return from_table(path, columns)
    if kind is JSONL:
        refuse_columns(name, Columns(resize=columns.resize, prepare=columns.prepare, fit=columns.fit))
        return from_jsonl(path, reading, "", *columns.text(name))
    if kind is ARRAYS:
        refuse_columns(name, columns, images=True)
        return _from_each(path, columns) if folder else from_npz(path, resize=columns.resize)
    if folder:
        return from_folder(path, columns)
    if there:
        what = f"files that end with {path.suffix}" if path.suffix else "files without an ending"
        raise UserError(f"{name}: {what} are not read: give an .npz, .parquet, .csv or .jsonl file.")
    if path.name.lower().endswith(READ) or len(path.parts) > 1:
        do = f"{meant(path)}give an .npz, .parquet, .csv or .jsonl file, or a folder of these or of images"
        raise UserError(f"{name}: no such file or folder; {do}.")
    raise UserError(f"{name!r} is neither a data set nor a path; {nearest(name, SOURCES)}")


def _from_each(path: Path, columns: Columns) -> Dataset:
    """A folder of .npz files, one for each client: x_train, y_train, and x_test, y_test in all of them or in none."""
    clients = dict[str, tuple[Any, ...]]()
    for file in files_of(path):
        if (name := name_of(file)) in WORDS:
            raise UserError(f"{file}: is no client: give one file of {', '.join(KEYS)}, or one for each client.")
        with archive(file) as stored:
            wanted = KEYS if {*KEYS[2:]} & {*stored.files} else KEYS[:2]
            _refuse_lacking(file, stored.files, wanted)
            if own := next((key for key in (*OWNERS, *WRITERS) if key in stored.files), None):
                raise UserError(f"{file}: holds {own}, and its name says whose all its samples are: leave it out.")
            clients[name] = tuple(stored[key] for key in wanted)
    return from_arrays(path.name, *given(str(path), clients, columns).in_order)


def _from_hub(source: Source, folders: list[Path], columns: Columns) -> Dataset:
    looked = f"in {' and '.join(str(folder) for folder in folders)}" if folders else "(APIECE_DATA is not set)"
    if not source.hub:
        raise UserError(
            f"{source.name}: no {' or '.join(source.files)} {looked}; put the file into a folder given by --data-dir "
            "or APIECE_DATA."
        )
    try:
        import datasets

        download: Any = datasets.load_dataset
        found = download(*source.hub)
    except Exception as error:  # without a stable network, the HTTP client raises errors of its own
        raise UserError(
            f"{source.name}: no {source.files[0]} {looked}, and no download ({type(error).__name__}); put a file "
            f"of that name with x_train, y_train, x_test, y_test into a folder given by --data-dir or APIECE_DATA."
        ) from error
    data = from_huggingface(found, source.name, source.classes, columns)
    return data if source.mean is None else replace(data, mean=source.mean, std=source.std)
