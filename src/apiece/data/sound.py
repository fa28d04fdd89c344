"""Given samples and labels, made sound arrays or refused in one sentence with the first bad row."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
from torch import Tensor

from apiece.errors import UserError
from apiece.system.device import to_numpy

_CHANNELS = {1, 3, 4}  # of gray, colored and part-transparent images


def as_array(one: Any) -> np.ndarray:
    """One sample, or one part of all samples, as an array; UserError for what NumPy makes none of."""
    if hasattr(one, "toarray"):
        raise UserError(f"data: a {type(one).__name__} is sparse: give x.toarray().")
    try:
        return to_numpy(one) if isinstance(one, Tensor) else np.asarray(one)
    except (TypeError, ValueError, RuntimeError):
        if isinstance(one, Tensor):
            raise UserError(
                f"data: a tensor of {one.dtype}, {one.layout}, does not become an array: give x.to_dense() of a sparse "
                "one, and x.float() of others."
            ) from None
        raise UserError("data: lists in lists have unequal lengths, so they form no array: make them alike.") from None


def samples(name: str, part: str, x: Any) -> np.ndarray:
    """Samples as uint8 or finite float32, images with their channels last."""
    where = f"{name}, {part} samples"
    try:
        x = numbers(x)
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused below
            x = x if x.dtype == np.uint8 else np.asarray(x, dtype=np.float32)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{where}: they must be numbers in one array ({error}); give each the same shape.") from None
    if not x.ndim:
        raise UserError(f"{where}: there is one value instead of an array of numbers; give [n, ...].")
    if 0 in x.shape[1:]:
        raise UserError(f"{where}: they have the shape {list(x.shape)}, so a sample has no number; give some.")
    finite(where, x)
    return channels_last(where, x)


def numbers(x: Any) -> np.ndarray:
    """An array of real numbers; TypeError for text, complex and masked numbers, which are never converted."""
    if np.ma.is_masked(x):
        raise TypeError("some are masked")
    if hasattr(x, "toarray"):
        raise TypeError(f"a {type(x).__name__} is sparse: give x.toarray()")
    x = np.asarray(x)
    said = x.dtype.kind == "O" and any(isinstance(value, (str, bytes, complex)) for value in x.flat)
    if x.dtype.kind not in "buifO" or said:
        raise TypeError("there is text among them" if said else f"their type is {x.dtype}")
    return x


def tested(name: str, x: Any, y: Any) -> bool:
    """Whether there are test samples; UserError for these without their targets, or the other way round."""
    if (x is None) != (y is None):
        given, lacking = ("targets", "samples") if x is None else ("samples", "targets")
        raise UserError(f"{name}: there are test {given} without test {lacking}: give both or neither.")
    return x is not None


def labels(name: str, part: str, y: Any) -> np.ndarray:
    """Labels [n], one class for each sample, of any type that sorts; a column [n, 1] becomes [n]."""
    where = f"{name}, {part} labels"
    try:
        y = np.asarray(y)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{where}: they do not form one array ({error}); give one class a sample.") from None
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim != 1:
        found = f"have the shape {list(y.shape)}" if y.ndim else f"are {y}"
        raise UserError(
            f"{where}: the labels {found}; give one class a sample (y.argmax(1) of one-hot rows), or a Federation of "
            "such targets."
        )
    if y.dtype.kind not in "buifOUSMm":
        raise UserError(f"{where}: their type is {y.dtype}; give whole numbers or texts.")
    present(where, y)
    refuse_unwritable(where, "the label", y if texts(y) else ())
    if y.dtype.kind == "f" and (np.abs(y) > 2**53).any():
        raise UserError(f"{where}: one of them is {np.abs(y).max():g}, which is too large for a float; give integers.")
    if np.issubdtype(y.dtype, np.floating) and (y != np.rint(y)).any():
        raise UserError(
            f"{name}: labels are no classes but numbers with fractions; give whole numbers or texts, or say "
            "task='regression'."
        )
    try:
        if y.dtype == object:  # objects alone may not sort
            np.sort(y)
    except TypeError as error:
        raise UserError(f"{where}: they are of several kinds ({error}); give numbers or texts alone.") from None
    if y.dtype.kind in "iu" and (not len(y) or y.max() <= np.iinfo(np.int64).max):
        return y.astype(np.int64)
    return y.astype(object) if y.dtype.kind == "u" else y  # unsigned numbers would become floats beside signed ones


def plain(y: Any) -> np.ndarray | None:
    """Targets as one array, a column [n, 1] and masks of one channel without that axis; None where they form none.
    Objects that are real numbers, as a database's decimals are, become floats; whole numbers of Python stay.
    """
    try:
        y = np.asarray(y)
    except (TypeError, ValueError, RuntimeError):
        return None
    if y.dtype == object and all(isinstance(one, (Real, Decimal)) for one in y.flat):
        y = y if all(isinstance(one, Integral) for one in y.flat) else y.astype(np.float64)
    if y.ndim == 2 and y.shape[1] == 1:
        return y[:, 0]
    return y.squeeze(1 if y.shape[1] == 1 else 3) if y.ndim == 4 and 1 in (y.shape[1], y.shape[3]) else y


def targets(name: str, part: str, y: np.ndarray, real: bool) -> np.ndarray:
    """Targets [n, ...] as finite floats where they are real, else as int64."""
    where = f"{name}, {part} targets"
    if y.dtype.kind not in "buif":
        raise UserError(f"{where}: their type is {y.dtype}; give numbers.")
    if y.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(y).reshape(len(y), -1).all(1))
        if len(bad):
            raise UserError(
                f"{where}: row {bad[0]} (counted from 0) has a missing or infinite value; drop or fill such rows."
            )
    if real:
        return y if y.dtype in (np.float32, np.float64) else y.astype(np.float64)
    return y if y.dtype.kind == "f" else y.astype(np.int64)


def texts(y: np.ndarray) -> bool:
    """Whether labels are texts."""
    return y.dtype.kind in "US" or (len(y) > 0 and isinstance(y[0], (str, bytes)))


def together(name: str, *parts: np.ndarray) -> np.ndarray:
    """The labels of all parts in one array; UserError where they are numbers in one part and texts in another."""
    if len({texts(part) for part in parts}) > 1:
        raise UserError(f"{name}: some parts have numbers for labels and others texts; give one kind of them.")
    return np.concatenate(parts)


def owners(name: str, *parts: Any) -> list[np.ndarray | None]:
    """The owner of each sample of all parts that have any, as arrays [n]. Where some are numbers and others texts, all
    become texts; UserError if two become the same.
    """
    arrays = [None if part is None else as_array(part) for part in parts]
    if (odd := next((array for array in arrays if array is not None and array.ndim != 1), None)) is not None:
        raise UserError(f"{name}: the clients of samples have the shape {list(odd.shape)}; give one for each sample.")
    given = [array[~missing(array)] for array in arrays if array is not None]
    for array in given:
        refuse_unwritable(name, "the client", array if array.dtype.kind in "OU" else ())
    some = [array if array.dtype == object else array[:1] for array in given]
    if len({isinstance(owner, (str, bytes)) for array in some for owner in array}) < 2:
        return arrays
    refuse_alike(name, [owner for array in given for owner in array.tolist()])
    return [array if array is None else _words(array) for array in arrays]


def _words(owners: np.ndarray) -> np.ndarray:
    """The same as texts, None where one is missing."""
    words = owners.astype(str).astype(object)
    words[missing(owners)] = None
    return words


def refuse_unwritable(where: str, what: str, words: Iterable[Any]) -> None:
    """Raise UserError if a name has a character that UTF-8 does not have, as what a folder's odd bytes are read as."""
    for word in words:
        if isinstance(word, str) and not word.isascii() and word.encode(errors="replace").decode() != word:
            raise UserError(f"{where}: {what} {str(word)!r} has a character that no file can hold: name it without it.")


def refuse_alike(where: str, owners: Iterable[Any]) -> None:
    """Raise UserError if a number and a text that name clients are the same word, as 1 and "1"."""
    words = dict[str, Any]()
    for owner in owners:
        if isinstance(words.setdefault(str(owner), owner), str) != isinstance(owner, str):
            raise UserError(f"{where}: {str(owner)!r} names a client as a number and as a text: write it in one way.")


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


def finite_tensors(where: str, tensors: Iterable[Tensor]) -> None:
    """Refuse tensors [n, ...] that hold NaN or an infinite number."""
    for one in tensors:
        if one.is_floating_point() and not one.isfinite().all():
            row = int((~one.isfinite()).reshape(len(one), -1).any(1).nonzero()[0])
            raise UserError(
                f"{where}: row {row} (counted from 0) has a number that is NaN or infinite; drop or fill it."
            )


def missing(values: np.ndarray) -> np.ndarray:
    """Where a column has no value, which is None or NaN, as a mask [n]."""
    if values.dtype != object:
        return values != values
    return np.array([v is None or (isinstance(v, (float, np.floating)) and v != v) for v in values], dtype=bool)


def present(where: str, values: np.ndarray) -> None:
    """Refuse labels [n] of which one is missing."""
    gone = np.flatnonzero(missing(values))
    if len(gone):
        raise UserError(f"{where}: row {gone[0]} (counted from 0) has a missing value; drop or fill such rows.")


def channels_last(where: str, x: np.ndarray) -> np.ndarray:
    """Samples with their channels last: floats [n, channels, H, W] are turned where their shape leaves no doubt."""
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
        raise UserError(f"{where}: {found} found; it needs one or more images, of one size and mode.")
    return np.stack(images)
