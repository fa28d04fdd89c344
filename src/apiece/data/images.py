"""Images from files and from datasets: made arrays of one size."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from apiece.data import sound
from apiece.data.arrays import Dataset, from_arrays
from apiece.data.columns import EVERYTHING, PARTS, Columns, refuse_columns
from apiece.data.folders import kind_of
from apiece.errors import UserError, said, with_extra

AS_THEY_ARE = ("L", "RGB")  # modes of Pillow that files keep; all others become colored
ALIKE = (*AS_THEY_ARE, "1", "RGBA")  # those that images of a dataset keep where all have the same
DEEP = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")  # levels that a conversion would cut off at 255


def from_folder(path: str | Path, columns: Columns = EVERYTHING) -> Dataset:
    """Images in one folder per class, FOLDER/CLASS/IMAGE, or in one per client that has one per class,
    FOLDER/CLIENT/CLASS/IMAGE. Either may be in FOLDER/train and FOLDER/test.
    """
    path, size = Path(path), columns.resize
    refuse_columns(str(path), columns, images=True)
    found = _parts(path, size)
    x, y, owner = found["train"]
    if "test" not in found:
        return from_arrays(path.name, x, y, natural_train=owner)
    x_test, y_test, owner_test = found["test"]
    if (owner is None) != (owner_test is None):
        raise UserError(f"{path}: train and test are not alike: give both one folder per class, or both per client.")
    return from_arrays(path.name, x, y, x_test, y_test, owner, owner_test)


def by_client(path: Path) -> bool:
    """Whether a folder of images has one folder for each client."""
    return _files(path / "train" if (path / "train").is_dir() else path)[1]


def samples_in(path: Path, size: tuple[int, int] | None) -> dict[str, np.ndarray]:
    """The images and the names of their classes of another client's folder: x_train, y_train of FOLDER/CLASS/IMAGE; of
    FOLDER/train/CLASS/IMAGE, with x_test, y_test of FOLDER/test/CLASS/IMAGE, if that is there.
    """
    found = dict[str, np.ndarray]()
    for which, (x, y, _) in _parts(path, size).items():
        found |= {f"x_{which}": x, f"y_{which}": y}
    return found


def _parts(path: Path, size: tuple[int, int] | None) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """What was read of FOLDER/train, and of FOLDER/test if that is there; of a FOLDER without `train`, as `train`.
    Raises UserError for parts by other names; a warning tells which folders beside `train` are not read.
    """
    folders = [one for one in sorted(path.iterdir()) if one.is_dir() and not one.name.startswith(".")]
    read = [path / which for which in ("train", "test") if (path / which).is_dir()]
    if not (path / "train").is_dir():
        if len(parts := [one.name for one in folders if one.name.lower() in PARTS]) > 1:
            raise UserError(
                f"{path}: the folders {', '.join(parts)} seem to be parts of the data, and no classes or clients: name "
                "them train and test, for only these two are read as parts."
            )
        return {"train": _read(path, size)}
    if others := [one.name for one in folders if not any(map(one.samefile, read))]:
        logging.getLogger(__name__).warning(
            "%s: only the folders train and test are read there, and not %s", path, ", ".join(others)
        )
    return {one.name: _read(one, size) for one in read}


def stacked(
    where: str, images: Sequence[Any], size: tuple[int, int] | None = None, masks: bool = False
) -> np.ndarray:
    """Images of Pillow, or arrays of their pixels, as one array uint8 [n, H, W] or [n, H, W, channels]: each resized to
    (H, W) = `size` (bilinear), if one is given. Images of Pillow keep their mode where all have the same of `ALIKE`;
    otherwise gray ones stay gray, and the others become colored. Gray images among colored ones become colored. `masks`
    are classes by pixel, which are never made colors.
    """
    modes = {getattr(image, "mode", "") for image in images}
    kept = modes if masks else ALIKE if len(modes) == 1 else AS_THEY_ARE
    arrays = [pixels(f"{where}, {place(i)}", image, size, kept) for i, image in enumerate(images)]
    if len({x.ndim for x in arrays}) > 1:
        arrays = [np.repeat(x[..., None], 3, axis=-1) if x.ndim == 2 else x for x in arrays]
    if size is None and len({x.shape[:2] for x in arrays}) > 1:
        sizes = sorted({x.shape[:2] for x in arrays})
        low, high = ("x".join(map(str, s)) for s in (sizes[0], sizes[-1]))
        raise UserError(
            f"{where}: images of {len(sizes)} shapes, from {low} to {high}: give one size to all, resize=32 or "
            "resize=32x24 (--resize, height x width)."
        )
    return sound.one_shape(where, arrays)


def resized(where: str, x: Any, y: Any, size: tuple[int, int] | None) -> Any:
    """Arrays of images [n, H, W], [n, H, W, channels] or [n, channels, H, W], or a list of such of unequal size, each
    resized to (H, W) = `size`, if one is given: uint8 as Pillow does it, floats channel by channel. UserError for
    samples that are no images, and for targets `y` of each pixel.
    """
    if size is None or x is None:
        return x
    refuse_masks(where, y)
    if isinstance(x, (dict, tuple)):
        raise UserError(f"{where}: resize is for images, and samples have several parts: resize them before.")
    ragged = isinstance(x, list) and len({sound.as_array(one).shape for one in x}) > 1
    parts = [sound.samples(where, "given", [one])[0] for one in x] if ragged else [*sound.samples(where, "given", x)]
    odd = next((one.shape for one in parts if one.ndim not in (2, 3)), None)
    if odd is not None:
        raise UserError(f"{where}: resize is for images, and samples have the shape {list(odd)}: leave it out.")
    return stacked(where, parts, size)


def refuse_masks(where: str, y: Any) -> None:
    """Raise UserError if targets, one a sample, are images themselves: these would have to be resized as well."""
    first = y[0] if isinstance(y, (list, tuple)) and y else None
    if getattr(y, "ndim", 0) > 2 or is_image(first) or getattr(first, "ndim", 0) > 1:
        raise UserError(f"{where}: resize is for the inputs alone, and the targets are images too: resize both before.")


def is_image(value: Any) -> bool:
    """Whether this is an image of Pillow."""
    return hasattr(value, "getbands") and hasattr(value, "resize")


def pixels(where: str, image: Any, size: tuple[int, int] | None, kept: Collection[str] = AS_THEY_ARE) -> np.ndarray:
    """The pixels of an image that is gray, or of another mode that is `kept`, or else becomes colored. Raises UserError
    for what is no image, for one that is damaged, and for levels of more than 8 bits.
    """
    if not is_image(image):
        if np.ndim(image) not in (2, 3):
            raise UserError(f"{where}: {image!r:.60} is no image: give one, or leave this sample out.")
        return _sized(image, size)
    if image.mode in DEEP and image.mode not in kept:
        raise UserError(
            f"{where}: its levels are of mode {image.mode!r}, not of 8 bits: save it with levels from 0 to 255, or "
            "give arrays of floats."
        )
    try:
        return _sized(image if image.mode in kept else image.convert("RGB"), size)
    except Exception as error:  # the decoders of damaged files raise errors of many kinds
        raise unreadable(where, error) from error


def place(number: int) -> str:
    """Which image of a dataset this is, in words."""
    return f"image {number} (counted from 0)"


def unreadable(where: str, error: Exception) -> UserError:
    """The error for an image that a decoder fails at."""
    return UserError(f"{where} cannot be read as an image ({said(error)}): remove or mend it.")


def _sized(image: Any, size: tuple[int, int] | None) -> np.ndarray:
    if size is None:
        return np.asarray(image)
    if not is_image(image):
        image = np.asarray(image)
        if image.ndim == 3 and (image.shape[2] != 3 or image.dtype != np.uint8):
            return np.stack([_sized(image[..., i], size) for i in range(image.shape[2])], axis=-1)
        image = _pillow(image)
    from PIL.Image import Resampling

    return np.asarray(image.resize(size[::-1], Resampling.BILINEAR))  # Pillow's sizes are (width, height)


def _pillow(pixels: np.ndarray) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise UserError(f"{error.name} is needed to resize images: {with_extra('data')}.") from None
    return Image.fromarray(np.ascontiguousarray(pixels))


def _read(path: Path, size: tuple[int, int] | None) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """(images, classes, clients) of FOLDER/CLASS/IMAGE, without clients, or of FOLDER/CLIENT/CLASS/IMAGE."""
    files, owned = _files(path)

    def read() -> Iterator[np.ndarray]:
        from PIL import Image

        for file in files:
            try:
                image = Image.open(file)
            except Exception as error:  # as above
                raise unreadable(str(file), error) from error
            with image:
                yield pixels(str(file), image, size)

    x = stacked(str(path), list(read()))
    owners = np.array([file.parent.parent.name for file in files]) if owned else None
    return x, np.array([file.parent.name for file in files]), owners


def _files(path: Path) -> tuple[list[Path], bool]:
    """The images of FOLDER/CLASS/IMAGE or FOLDER/CLIENT/CLASS/IMAGE, and whether they are the latter."""
    try:
        from PIL import Image
    except ImportError as error:
        raise UserError(f"{path}: {error.name} is needed to read images: {with_extra('data')}.") from None

    endings = Image.registered_extensions()
    hidden = lambda file: any(part.startswith(".") for part in file.relative_to(path).parts)  # of a system or a tool
    flat, deep = (
        [file for file in sorted(path.glob(pattern)) if file.suffix.lower() in endings and not hidden(file)]
        for pattern in ("*/*", "*/*/*")
    )
    if flat and deep:
        raise UserError(
            f"{path}: {flat[0]} is an image of a class, and {deep[0]} of a client's class: give all images one folder "
            "per class, or all one per client that has one per class."
        )
    if flat or deep:
        return flat or deep, bool(deep)
    if data := next((one for one in sorted(path.rglob("*")) if one.is_file() and kind_of(one)), None):
        raise UserError(
            f"{path}: holds {data.relative_to(path)} and folders: keep the files of clients side by side in one "
            "folder, which has no other."
        )
    raise UserError(
        f"{path}: no images found; it needs one folder per class, CLASS/IMAGE, or one per client that has one per "
        "class, CLIENT/CLASS/IMAGE."
    )
