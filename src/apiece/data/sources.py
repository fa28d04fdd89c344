"""Where samples come from: named data sets, files and folders, each read as one `Dataset`."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from apiece.data import sound
from apiece.data.archives import archive
from apiece.data.arrays import Dataset, from_arrays
from apiece.data.catalog import SOURCES, Source
from apiece.data.texts import from_jsonl
from apiece.errors import UserError, nearest, with_extra

JSONL = (".jsonl", ".jsonl.gz")
_CLIENT_COLUMNS = ("client", "client_id", "writer_id", "user_id", "user")


def load(name: str, data_dir: str | Path | None = None, reading: Any = None) -> Dataset:
    """A named data set of `apiece.data.catalog`, or the path of an .npz, .parquet, .csv or .jsonl file or an image
    folder.

    A name is looked for as NAME.npz (text: NAME.jsonl) in `data_dir`, then in the folder that APIECE_DATA names, then
    with the `datasets` package; a UserError says which file to put where. `reading` says how text becomes tokens.
    """
    source = SOURCES.get(name.lower().replace("_", "-"))
    if source is None:
        return _from_path(name, reading)
    if source.name == "digits":
        return _digits(source)
    folders = [Path(folder) for folder in (data_dir, os.environ.get("APIECE_DATA")) if folder]
    for path in (folder / file for folder in folders for file in source.files):
        if path.is_file():
            if path.name.endswith(JSONL):
                return from_jsonl(path, reading)
            if path.stem.replace("_", "-") != source.name:
                logging.getLogger(__name__).warning("%s: %s is a part of the whole set", source.name, path.name)
            return from_npz(path, path.stem.replace("_", "-"), source.mean, source.std, source.classes)
    return _from_hub(source, folders)


def from_npz(
    path: str | Path,
    name: str = "",
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    classes: int | None = None,
) -> Dataset:
    """A file of arrays x_train, y_train and perhaps x_test, y_test and client ids natural_train, natural_test (or
    writer_...). `mean`, `std` and `classes`, which are not in the file: see `from_arrays`.
    """
    with archive(path) as stored:
        if not {"x_train", "y_train"} <= set(stored.files):
            raise UserError(
                f"{path}: holds {', '.join(stored.files)}; it needs x_train and y_train, and x_test, y_test if any."
            )

        def get(*keys: str) -> Any:
            return next((stored[key] for key in keys if key in stored.files), None)

        return from_arrays(
            name or Path(path).stem, stored["x_train"], stored["y_train"], get("x_test"), get("y_test"),
            get("natural_train", "writer_train"), get("natural_test", "writer_test"), mean, std, classes,
        )  # fmt: skip


def from_table(path: str | Path, label: str = "label", client: str = "client", split: str = "split") -> Dataset:
    """A .parquet or .csv table: one row a sample, a label column, and a client column if the samples have owners.

    All other columns are features, numbers or lists of numbers. In a column `split`, the word "test" marks test rows.
    """
    table = _table(Path(path))
    features = [column for column in table.columns if column not in (label, client, split)]
    if label not in table.columns or not features:
        raise UserError(f"{path}: columns are {', '.join(map(str, table.columns))}; it needs {label!r} and a feature.")
    x = _features(str(path), table, features)
    y, natural = _column(table[label]), _column(table[client]) if client in table.columns else None
    sound.present(f"{path}, column {label!r}", y)
    if split not in table.columns:
        return from_arrays(Path(path).stem, x, y, natural_train=natural)
    test = (table[split] == "test").to_numpy()
    owners = (None, None) if natural is None else (natural[~test], natural[test])
    return from_arrays(Path(path).stem, x[~test], y[~test], x[test], y[test], *owners)


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


def _column(column: Any) -> np.ndarray:
    """A column of a table, with None for pandas' own missing value, which `==` cannot compare."""
    values, gone = column.to_numpy(), column.isna().to_numpy()
    if values.dtype == object and gone.any():
        values = values.copy()
        values[gone] = None
    return values


def _table(path: Path) -> Any:
    try:
        import pandas

        return (pandas.read_parquet if path.suffix == ".parquet" else pandas.read_csv)(path)
    except ImportError as error:
        raise UserError(f"{path}: {error.name} is needed to read it: {with_extra('data')}.") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: is no {path.suffix} table: {str(error).splitlines()[0]}.") from error


def from_folder(path: str | Path) -> Dataset:
    """Images in one folder per class, FOLDER/CLASS/IMAGE, or FOLDER/train/CLASS/IMAGE and FOLDER/test/CLASS/IMAGE."""
    path = Path(path)
    if (path / "train").is_dir():
        test = _images(path / "test") if (path / "test").is_dir() else (None, None)
        return from_arrays(path.name, *_images(path / "train"), *test)
    return from_arrays(path.name, *_images(path))


def from_huggingface(dataset: Any, name: str = "huggingface", classes: int | None = None) -> Dataset:
    """A `datasets.Dataset`, or a dictionary of them with "train" and perhaps "test": an image and a label column.

    The image is the first column of images, the label `label`, `fine_label` or the first of classes; a column named
    client, client_id, writer_id, user_id or user names each sample's owner. Where there is no image, all other columns
    are features, numbers or lists of numbers. `classes`: see `from_arrays`.
    """
    parts = dataset if isinstance(dataset, dict) else {"train": dataset}
    if "train" not in parts:
        raise UserError(f"{name}: has the parts {', '.join(parts)}; it needs one named train.")
    if not all(hasattr(part, "__len__") for part in parts.values()):
        raise UserError(f"{name}: it is a stream without a length; load it as a whole, without streaming=True.")
    kinds = {column: type(feature).__name__ for column, feature in parts["train"].features.items()}
    image = next((column for column, kind in kinds.items() if kind == "Image"), None)
    labels = [column for column, kind in kinds.items() if kind == "ClassLabel"]
    label = next((column for column in ("label", "fine_label", *labels) if column in kinds), None)
    client = next((column for column in _CLIENT_COLUMNS if column in kinds), None)
    features = [column for column in kinds if column not in (label, client)]
    if label is None or not features:
        raise UserError(
            f"{name}: columns are {', '.join(kinds)}; it needs one of images, or some of numbers, and one named label."
        )

    def columns(part: Any) -> list[Any]:
        if image is None:
            x = _features(name, part.to_pandas(), features)
        else:
            x = sound.one_shape(name, [np.asarray(row[image]) for row in part])
        return [x, part[label][:], None if client is None else np.asarray(part[client])]

    x, y, natural = columns(parts["train"])
    x_test, y_test, natural_test = columns(parts["test"]) if "test" in parts else (None, None, None)
    return from_arrays(name, x, y, x_test, y_test, natural, natural_test, classes=classes)


def _digits(source: Source) -> Dataset:
    """scikit-learn's 8x8 digits, levels 0 .. 16 stored as uint8: round(x 255 / 16); a fixed fifth is for test."""
    from sklearn.datasets import load_digits

    bunch: Any = load_digits()
    return from_arrays(source.name, np.rint(bunch.images * (255 / 16)).astype(np.uint8), bunch.target, classes=10)


def _from_path(name: str, reading: Any) -> Dataset:
    path, readers = Path(name), {".npz": from_npz, ".parquet": from_table, ".csv": from_table}
    if path.is_dir():
        return from_folder(path)
    if path.is_file() and path.name.endswith(JSONL):
        return from_jsonl(path, reading)
    if path.is_file() and path.suffix in readers:
        return readers[path.suffix](path)
    if path.suffix in readers or path.name.endswith(JSONL) or len(path.parts) > 1:
        raise UserError(
            f"{name}: no such file or folder; give an .npz, .parquet, .csv or .jsonl file or a folder of images."
        )
    raise UserError(f"{name!r} is neither a data set nor a path; {nearest(name, SOURCES)}")


def _from_hub(source: Source, folders: list[Path]) -> Dataset:
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
    data = from_huggingface(found, source.name, source.classes)
    return data if source.mean is None else replace(data, mean=source.mean, std=source.std)


def _images(path: Path) -> tuple[np.ndarray, np.ndarray]:
    from PIL import Image

    def read() -> Iterator[tuple[np.ndarray, str]]:
        for folder in sorted(entry for entry in path.iterdir() if entry.is_dir()):
            for file in sorted(folder.iterdir()):
                if file.suffix.lower() in Image.registered_extensions():
                    with Image.open(file) as image:
                        plain = image if image.mode in ("L", "RGB") else image.convert("RGB")
                        yield np.asarray(plain, dtype=np.uint8), folder.name

    pairs = list(read())
    if not pairs:
        raise UserError(f"{path}: no images found; it needs folders, one per class, of images.")
    return sound.one_shape(str(path), [x for x, _ in pairs]), np.array([y for _, y in pairs])
