"""Samples and labels as plain arrays: a `Dataset`, how arrays become one, its held-out part and its moments."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from apiece.data import sound
from apiece.errors import UserError
from apiece.randomness import generator

Tree = Any
TEST_SHARE = 0.2  # the share of each class that is held out where the data have no test set


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples and labels. Images stay uint8, [n, H, W] or [n, H, W, channels]; text is rows of tokens, int64 [n, T];
    other features are float32.

    Labels are int64 in 0 .. classes - 1. `natural_*` names the owner of each sample. `mean` and `std` are per channel
    of the training pixels scaled to [0, 1], None for features that are no images. Where labels only divide the samples,
    `targets_*` holds what is predicted instead: int64 [n, T], IGNORED where there is no target. `known` are the
    original names of labels 0 .. classes - 1, None where these are not known. Where a model takes several inputs,
    `inputs_*` holds them, a dict or tuple of arrays [n, ...], of which x is the first.
    """

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int
    natural_train: np.ndarray | None = None
    natural_test: np.ndarray | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    targets_train: np.ndarray | None = None
    targets_test: np.ndarray | None = None
    known: np.ndarray | None = None
    inputs_train: Tree = None
    inputs_test: Tree = None

    def __post_init__(self) -> None:
        for part, y in (("training", self.y_train), ("test", self.y_test)):
            if len(y) and not 0 <= y.min() <= y.max() < self.classes:
                raise UserError(
                    f"{self.name}: the {part} labels go from {y.min()} to {y.max()}, and there are {self.classes} "
                    f"classes: give labels from 0 to {self.classes - 1}."
                )

    def __repr__(self) -> str:
        shape, parts = self.x_train.shape[1:], f"train={len(self.y_train)}, test={len(self.y_test)}"
        return f"Dataset({self.name!r}, {parts}, shape={shape}, classes={self.classes})"

    @property
    def text(self) -> bool:
        """Whether samples are rows of tokens."""
        return self.x_train.dtype == np.int64

    def __str__(self) -> str:
        shape = "x".join(str(size) for size in self.x_train.shape[1:])
        return f"{self.name}: {len(self.x_train)} + {len(self.x_test)} samples of {shape}, {self.classes} classes"


def from_arrays(
    name: str,
    x_train: np.ndarray,
    y_train: np.ndarray,
    x_test: np.ndarray | None = None,
    y_test: np.ndarray | None = None,
    natural_train: np.ndarray | None = None,
    natural_test: np.ndarray | None = None,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    classes: int | None = None,
) -> Dataset:
    """A data set from arrays. Labels may be anything that sorts, and become 0, 1, ... in that order; with `classes`,
    labels that are whole numbers are the numbers of so many classes already, and stay as they are.

    Without a test set a fixed fifth of each class is held out. Mean and deviation of uint8 images are measured. Floats
    are read as [n, channels, H, W] where their shape leaves no doubt, else as [n, H, W, channels].
    """
    x_train, y_train = sound.samples(name, "training", x_train), sound.labels(name, "training", y_train)
    alike = len(x_train) == len(y_train) and (natural_train is None or len(natural_train) == len(x_train))
    taken = alike and (x_test is None or y_test is None)
    if x_test is not None and y_test is not None:
        x_test, y_test = sound.samples(name, "test", x_test), sound.labels(name, "test", y_test)
    elif taken:
        held = held_out(y_train, TEST_SHARE)
        x_test, y_test, x_train, y_train = x_train[held], y_train[held], x_train[~held], y_train[~held]
        if natural_train is not None:
            natural_train, natural_test = natural_train[~held], natural_train[held]
    else:
        x_test, y_test = x_train[:0], y_train[:0]
    columns = ((x_train, y_train, natural_train, "training"), (x_test, y_test, natural_test, "test"))
    for x, y, natural, part in columns:
        if not len(x) or len(x) != len(y) or (natural is not None and len(natural) != len(x)):
            clients = "" if natural is None else f" and {len(natural)} client ids"
            held = " once a fifth is held out" if taken else ""
            raise UserError(
                f"{name}: {len(x)} {part} samples, {len(y)} labels{clients}{held}; give one for each, and one or more."
            )
    if x_train.shape[1:] != x_test.shape[1:]:
        raise UserError(
            f"{name}: training samples are {x_train.shape[1:]}, test samples {x_test.shape[1:]}; make them alike."
        )
    known, y = _classes(name, sound.together(name, y_train, y_test), classes)
    if mean is None and x_train.dtype == np.uint8 and x_train.ndim > 2:
        mean, std = moments(x_train)
    y_train, y_test = y[: len(y_train)], y[len(y_train) :]
    natural = (natural_train, natural_test)
    return Dataset(name, x_train, y_train, x_test, y_test, len(known), *natural, mean, std, known=known)


def _classes(name: str, labels: np.ndarray, classes: int | None) -> tuple[np.ndarray, np.ndarray]:
    """(the names of labels 0, 1, ..., each label's number). A warning says that numbers become other numbers."""
    known, y = np.unique(labels, return_inverse=True)
    if classes is not None and known.dtype == np.int64:
        if known[0] < 0 or known[-1] >= classes:
            raise UserError(
                f"{name}: the labels go from {known[0]} to {known[-1]}, and there are {classes} classes: give labels "
                f"from 0 to {classes - 1}."
            )
        return np.arange(classes), labels
    if not sound.texts(known) and not np.array_equal(known, np.arange(len(known))):
        logging.getLogger(__name__).warning(
            "%s: the labels %s are numbered 0 to %d, in this order", name, listed(known), len(known) - 1
        )
    return known, y.astype(np.int64)


def listed(known: np.ndarray) -> str:
    """Labels with commas between them; of many, only the first and the last."""
    words = [str(label) for label in known.tolist()]
    return ", ".join(words if len(words) <= 12 else [*words[:10], "...", words[-1]])


def numbered(y: np.ndarray, known: np.ndarray, where: str) -> np.ndarray:
    """The number of each label among the known ones; UserError for any other label."""
    number = {label: i for i, label in enumerate(known.tolist())}
    strange = next((label for label in y.tolist() if label not in number), None)
    if strange is not None:
        raise UserError(f"{where}: {strange!r} is no known label; allowed: {listed(known)}.")
    return np.array([number[label] for label in y.tolist()], dtype=np.int64)


def held_out(labels: np.ndarray, share: float) -> np.ndarray:
    """A fixed choice of ceil(share n) samples, each class in proportion, as a mask [n]."""
    shuffled = generator(0, "held out").permutation(len(labels))
    ordered = shuffled[np.argsort(np.asarray(labels)[shuffled], kind="stable")]
    size = int(np.ceil(share * len(labels)))
    mask = np.zeros(len(labels), dtype=bool)
    mask[ordered[np.arange(size) * len(labels) // size]] = True
    return mask


def moments(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation per channel of uint8 images [n, H, W] or [n, H, W, channels], scaled to [0, 1], exactly.

    A channel with only one level has the deviation 1, so that it becomes 0 and not 0 / 0.
    """
    channels = images[..., None] if images.ndim == 3 else images
    counts = np.zeros((channels.shape[-1], 256))
    for start in range(0, len(images), 4096):
        for channel, row in enumerate(counts):
            row += np.bincount(channels[start : start + 4096, ..., channel].ravel(), minlength=256)
    levels, share = np.arange(256) / 255, counts / counts.sum(axis=1, keepdims=True)
    mean = share @ levels
    constant = (counts > 0).sum(axis=1) == 1  # there the difference below is a residue of rounding, perhaps negative
    variance = np.where(constant, 1, share @ levels**2 - mean**2)
    return tuple(mean.tolist()), tuple(np.sqrt(variance).tolist())
