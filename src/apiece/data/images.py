"""Images from files and from datasets: made arrays of one size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from apiece.data import sound
from apiece.data.arrays import Dataset, from_arrays
from apiece.data.columns import EVERYTHING, Columns, refuse_columns
from apiece.errors import UserError, with_extra


def from_folder(path: str | Path, columns: Columns = EVERYTHING) -> Dataset:
    """Images in one folder per class, FOLDER/CLASS/IMAGE, or FOLDER/train/CLASS/IMAGE and FOLDER/test/CLASS/IMAGE."""
    path, size = Path(path), columns.resize
    refuse_columns(str(path), columns, images=True)
    if (path / "train").is_dir():
        test = _read(path / "test", size) if (path / "test").is_dir() else (None, None)
        return from_arrays(path.name, *_read(path / "train", size), *test)
    return from_arrays(path.name, *_read(path, size))


def stacked(where: str, images: Sequence[Any], size: tuple[int, int] | None = None) -> np.ndarray:
    """Images of Pillow, or arrays of their pixels, as one array uint8 [n, H, W] or [n, H, W, channels]: each resized to
    (H, W) = `size` (bilinear), if one is given. Gray images among colored ones become colored.
    """
    arrays = [_sized(image, size) for image in images]
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


def is_image(value: Any) -> bool:
    """Whether this is an image of Pillow."""
    return hasattr(value, "getbands") and hasattr(value, "resize")


def _sized(image: Any, size: tuple[int, int] | None) -> np.ndarray:
    if size is None:
        return np.asarray(image)
    if not is_image(image):
        from PIL import Image

        image = Image.fromarray(np.asarray(image))
    from PIL.Image import Resampling

    return np.asarray(image.resize(size[::-1], Resampling.BILINEAR))  # Pillow's sizes are (width, height)


def _read(path: Path, size: tuple[int, int] | None) -> tuple[np.ndarray, np.ndarray]:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise UserError(f"{path}: {error.name} is needed to read images: {with_extra('data')}.") from None

    def read() -> Iterator[tuple[np.ndarray, str]]:
        for folder in sorted(entry for entry in path.iterdir() if entry.is_dir()):
            for file in sorted(folder.iterdir()):
                if file.suffix.lower() in Image.registered_extensions():
                    try:
                        with Image.open(file) as image:
                            plain = image if image.mode in ("L", "RGB") else image.convert("RGB")
                            yield _sized(plain, size), folder.name
                    except (UnidentifiedImageError, OSError) as error:
                        raise UserError(f"{file} cannot be read as an image ({error}): remove or mend it.") from None

    pairs = list(read())
    if not pairs:
        raise UserError(f"{path}: no images found; it needs folders, one per class, of images.")
    return stacked(str(path), [x for x, _ in pairs]), np.array([y for _, y in pairs])
