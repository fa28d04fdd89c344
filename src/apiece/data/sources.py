"""Where samples come from: named data sets, files and folders, each read as one `Dataset`."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from apiece.data.archives import archive
from apiece.data.arrays import Dataset, from_arrays
from apiece.data.catalog import SOURCES, Source, source_of
from apiece.data.columns import EVERYTHING, Columns, refuse_columns
from apiece.data.frames import from_table
from apiece.data.hub import from_huggingface
from apiece.data.images import from_folder, resized
from apiece.data.separated import TABLES, is_table
from apiece.data.texts import from_jsonl
from apiece.errors import UserError, meant, nearest

JSONL = (".jsonl", ".jsonl.gz")
READ = (".npz", *TABLES, *JSONL)  # how the names of all files end that are read


def load(name: str, data_dir: str | Path | None = None, reading: Any = None, columns: Columns = EVERYTHING) -> Dataset:
    """A named data set of `apiece.data.catalog`, or the path of an .npz, .parquet, .csv or .jsonl file or a folder
    of images or of tables.

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
        if not {"x_train", "y_train"} <= set(stored.files):
            raise UserError(
                f"{path}: holds {', '.join(stored.files)}; it needs x_train and y_train, and x_test, y_test if any."
            )

        def get(*keys: str) -> Any:
            return next((stored[key] for key in keys if key in stored.files), None)

        y, y_test = stored["y_train"], get("y_test")
        x = resized(str(path), stored["x_train"], y, resize)
        x_test = resized(str(path), get("x_test"), y_test, resize)
        natural = get("natural_train", "writer_train"), get("natural_test", "writer_test")
        return from_arrays(name or Path(path).stem, x, y, x_test, y_test, *natural, mean, std, classes)


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
    if os.path.isdir(path):
        return from_table(path, columns) if is_table(path) else from_folder(path, columns)
    if os.path.isfile(path) and path.name.lower().endswith(JSONL):
        refuse_columns(name, Columns(resize=columns.resize, prepare=columns.prepare, fit=columns.fit))
        return from_jsonl(path, reading, "", *columns.text(name))
    if os.path.isfile(path) and is_table(path):
        return from_table(path, columns)
    if os.path.isfile(path) and path.suffix.lower() == ".npz":
        refuse_columns(name, columns, images=True)
        return from_npz(path, resize=columns.resize)
    if os.path.isfile(path):
        what = f"files that end with {path.suffix}" if path.suffix else "files without an ending"
        raise UserError(f"{name}: {what} are not read: give an .npz, .parquet, .csv or .jsonl file.")
    if path.name.lower().endswith(READ) or len(path.parts) > 1:
        do = f"{meant(path)}give an .npz, .parquet, .csv or .jsonl file or a folder of images or tables"
        raise UserError(f"{name}: no such file or folder; {do}.")
    raise UserError(f"{name!r} is neither a data set nor a path; {nearest(name, SOURCES)}")


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
