"""Samples and labels that somebody gave, made sound arrays or refused in one sentence with the first bad row."""

from __future__ import annotations

from typing import Any

import numpy as np

from driftless.errors import UserError

_CHANNELS = {1, 3, 4}  # of grey, coloured and part-transparent images


def samples(name: str, part: str, x: Any) -> np.ndarray:
    """Samples as uint8 or finite float32, images with their channels last."""
    where = f"{name}, {part} samples"
    try:
        x = np.asarray(x)
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused below
            x = x if x.dtype == np.uint8 else np.asarray(x, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: they must be numbers in one array ({error}); give each the same shape.") from None
    if not x.ndim:
        raise UserError(f"{where}: there is one value instead of an array of numbers; give [n, ...].")
    finite(where, x)
    return channels_last(where, x)


def labels(name: str, part: str, y: Any) -> np.ndarray:
    """Labels as one class a sample, [n], of anything that sorts; a column [n, 1] is a row."""
    where = f"{name}, {part} labels"
    try:
        y = np.asarray(y)
    except ValueError as error:
        raise UserError(f"{where}: they are no one array ({error}); give one class a sample.") from None
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim != 1:
        found = f"have the shape {list(y.shape)}" if y.ndim else f"are {y}"
        raise UserError(
            f"{where}: the labels {found}; give one class a sample (y.argmax(1) of one-hot rows), or a Federation of "
            "such targets."
        )
    present(where, y)
    if np.issubdtype(y.dtype, np.floating) and (y != np.rint(y)).any():
        raise UserError(f"{name}: labels are no classes but numbers with fractions; give a Federation of such targets.")
    try:
        if y.dtype == object:  # which alone may hold what does not sort
            np.sort(y)
    except TypeError as error:
        raise UserError(f"{where}: they are of several kinds ({error}); give numbers or texts alone.") from None
    return y


def finite(where: str, x: np.ndarray) -> None:
    """Refuse samples [n, ...] that hold NaN or an infinite number."""
    if x.dtype == np.uint8:
        return
    bad = np.flatnonzero(~np.isfinite(x).all(axis=tuple(range(1, x.ndim))))
    if len(bad):
        raise UserError(
            f"{where}: row {bad[0]} (counted from 0) has a number that is NaN, infinite or too large for float32; "
            "drop or fill such rows."
        )


def missing(values: np.ndarray) -> np.ndarray:
    """Where a column has no value, but None or NaN, as a mask [n]."""
    if values.dtype != object:
        return values != values
    return np.array([v is None or (isinstance(v, (float, np.floating)) and v != v) for v in values], dtype=bool)


def present(where: str, values: np.ndarray) -> None:
    """Refuse labels [n] of which one is missing."""
    gone = np.flatnonzero(missing(values))
    if len(gone):
        raise UserError(f"{where}: row {gone[0]} (counted from 0) has a missing value; drop or fill such rows.")


def channels_last(where: str, x: np.ndarray) -> np.ndarray:
    """Samples with their channels last: floats [n, channels, H, W] are turned where they can be nothing else."""
    if x.ndim > 4:
        raise UserError(
            f"{where}: they have the shape {list(x.shape)}; give features [n, d], images [n, H, W] or "
            "[n, H, W, channels], or a Federation of such tensors."
        )
    first = x.ndim == 4 and x.dtype != np.uint8 and x.shape[1] in _CHANNELS and not _CHANNELS & set(x.shape[2:])
    return np.moveaxis(x, 1, -1) if first else x


def one_shape(where: str, images: list[np.ndarray]) -> np.ndarray:
    """Images of one size and mode as one array."""
    shapes = sorted({x.shape for x in images})
    if len(shapes) != 1:
        found = f"images of {len(shapes)} shapes, {shapes[:3]}" if shapes else "no images"
        raise UserError(f"{where}: {found} found; it needs images of one size and mode, and some.")
    return np.stack(images)
