"""Samples and labels as plain arrays: a `Dataset`, how arrays become one, its held-out part and its moments."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from apiece.data import sound, tasks
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
    `targets_*` holds what is predicted instead: tokens int64 [n, T] or a class for each pixel int64 [n, H, W], IGNORED
    where there is no target; real numbers [n], [n, k]; several labels, 0 or 1 [n, k]. `known` are the original names of
    labels 0 .. classes - 1, None where these are not known. Where a model takes several inputs, `inputs_*` holds them,
    a dict or tuple of arrays [n, ...], of which x is the first. `task` is the name of what is learned, "" where the
    targets say it. `held` masks those of all given samples that were held out for testing, if some were. `preparation`
    made numbers of a table's columns (`Preparation`), of which so many cells were `gaps`; one that each client fits has
    not been applied yet; a table without one has the names of its `columns`. If the samples are `sequences`,
    [n, a, b] are no images.

    >>> x, y = np.zeros((6, 4), np.float32), np.array([0, 1, 0, 1, 2, 2])
    >>> Dataset("mine", x_train=x, y_train=y, x_test=x, y_test=y, classes=3)
    Dataset('mine', train=6, test=6, shape=(4,), classes=3)
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
    task: str = ""
    held: np.ndarray | None = None
    preparation: Any = None
    gaps: int = 0
    columns: tuple[str, ...] = ()
    sequences: bool = False

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
        what = f"{self.classes} classes" if self.targets_train is None or self.text else f"for {self.task or tasks.OWN}"
        return f"{self.name}: {len(self.x_train)} + {len(self.x_test)} samples of {shape}, {what}"


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
    task: str = tasks.AUTO,
) -> Dataset:
    """A data set from arrays. Labels may be anything that sorts, and become 0, 1, ... in that order; with `classes`,
    labels that are whole numbers are the numbers of so many classes already, and stay as they are. Other targets are
    several labels [n, k], real numbers [n] or [n, k], or a class for each pixel [n, H, W]: `task` says which, or is
    inferred (`apiece.data.tasks`). Splits by label then divide real targets [n] by their tenths.

    Without a test set a fixed fifth is held out, of each class, or of each client in `natural_train`. Mean and
    deviation of uint8 images are measured. Floats are read as [n, channels, H, W] where their shape leaves no doubt,
    else as [n, H, W, channels].
    """
    natural_train, natural_test = sound.owners(name, natural_train, natural_test)
    tested = sound.tested(name, x_test, y_test)
    x_train = sound.samples(name, "training", x_train)
    task, y_train, targets = _read(name, "training", x_train, y_train, task)
    held = None
    alike = len(x_train) == len(y_train) and (natural_train is None or len(natural_train) == len(x_train))
    taken = alike and not tested
    if tested:
        x_test = sound.samples(name, "test", x_test)
        _, y_test, held_targets = _read(name, "test", x_test, y_test, task, targets)
    elif taken:
        held = held_out(y_train, TEST_SHARE, natural_train)
        x_test, y_test, x_train, y_train = x_train[held], y_train[held], x_train[~held], y_train[~held]
        targets, held_targets = (None, None) if targets is None else (targets[~held], targets[held])
        if natural_train is not None:
            natural_train, natural_test = natural_train[~held], natural_train[held]
    else:
        x_test, y_test, held_targets = x_train[:0], y_train[:0], targets
    columns = ((x_train, y_train, natural_train, "training"), (x_test, y_test, natural_test, "test"))
    for x, y, natural, part in columns:
        if not len(x) or len(x) != len(y) or (natural is not None and len(natural) != len(x)):
            clients = "" if natural is None else f" and {len(natural)} client ids"
            rest = " once a fifth is held out" if taken else ""
            raise UserError(
                f"{name}: {len(x)} {part} samples, {len(y)} labels{clients}{rest}; give one for each, and one or more."
            )
    if x_train.shape[1:] != x_test.shape[1:]:
        raise UserError(
            f"{name}: training samples are {x_train.shape[1:]}, test samples {x_test.shape[1:]}; make them alike."
        )
    if targets is not None and held_targets is not None and targets.shape[1:] != held_targets.shape[1:]:
        shapes = [list(part.shape[1:]) for part in (targets, held_targets)]
        raise UserError(f"{name}: training targets are {shapes[0]}, test targets {shapes[1]}; make them alike.")
    numbers = classes if targets is None else int(max(y_train.max(), y_test.max())) + 1
    known, y = _classes(name, sound.together(name, y_train, y_test), numbers)
    if mean is None and x_train.dtype == np.uint8 and x_train.ndim > 2:
        mean, std = moments(x_train)
    y_train, y_test = y[: len(y_train)], y[len(y_train) :]
    natural = (natural_train, natural_test)
    made = Dataset(name, x_train, y_train, x_test, y_test, len(known), *natural, mean, std, known=known, held=held)
    if targets is None:
        return made
    return replace(made, targets_train=targets, targets_test=held_targets, known=None, task=task)


def unread(count: int) -> np.ndarray:
    """Stands for `count` samples where `from_arrays` is to read their targets, and to say by `held` which are held out
    for testing, before they are arrays.
    """
    return np.zeros((count, 1), dtype=np.float32)


class Targets(NamedTuple):
    """What a task predicts, read from given arrays."""

    task: str
    labels: np.ndarray  # [n], by which samples are divided
    targets: np.ndarray | None  # [n, ...], None where the labels are predicted


def _read(
    name: str, part: str, x: np.ndarray, y: Any, task: str, like: np.ndarray | None = None
) -> Targets:
    """The targets of one part of the data, for a task or for what they say; `like`: those of the training part."""
    given = sound.plain(y)
    found = tasks.inferred(given, x.shape[1:]) if task == tasks.AUTO else task
    if found in ("classification", "language-modeling", tasks.OWN) or given is None:
        if task in ("language-modeling", tasks.OWN):
            raise UserError(f"{name}: task={task!r} is not for arrays of numbers: give texts in a .jsonl file.")
        return Targets("classification", sound.labels(name, part, y), None)
    if task == tasks.AUTO and tasks.one_hot(given):
        raise UserError(
            f"{name}, {part} labels: every row of {list(given.shape)} has a single 1: give the classes, y.argmax(1), "
            "or task='multilabel' if a sample may have several."
        )
    read = sound.targets(name, part, given, real=found in tasks.REAL)
    if found == "multilabel":
        read = read.astype(np.float32)
    tasks.refuse_misfit(found, read, x.shape[1:])
    binned = found in tasks.REAL and read.ndim == 1
    labels = tasks.bins(read, read if like is None else like) if binned else np.zeros(len(read), dtype=np.int64)
    return Targets(found, labels, read)


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
    """The number of each label among the known ones; UserError for any other label. Where these are texts, as codes
    such as 007 are, a number is read as its text.
    """
    y = y.astype(str) if sound.texts(known) and not sound.texts(y) else y
    number = {label: i for i, label in enumerate(known.tolist())}
    strange = next((label for label in y.tolist() if label not in number), None)
    if strange is not None:
        raise UserError(f"{where}: {strange!r} is no known label; allowed: {listed(known)}.")
    return np.array([number[label] for label in y.tolist()], dtype=np.int64)


def held_out(labels: np.ndarray, share: float, owners: np.ndarray | None = None) -> np.ndarray:
    """A fixed choice of ceil(share n) samples as a mask [n]: of each class in proportion, or of each owner, and then of
    each of its classes. An owner's only sample is not taken, unless nobody has two.
    """
    rng = generator(0, "held out")
    shuffled = rng.permutation(len(labels))
    if owners is None:
        ordered = shuffled[np.argsort(np.asarray(labels)[shuffled], kind="stable")]
    else:
        kinds, owner = (np.unique(column.astype(str), return_inverse=True)[1] for column in (labels, owners))
        # owners' classes stand in orders of their own: in one order, the same class would be taken of each small owner
        pairs, pair = np.unique(owner * len(labels) + kinds, return_inverse=True)
        ordered = shuffled[np.lexsort((rng.permutation(len(pairs))[pair][shuffled], owner[shuffled]))]
        several = np.bincount(owner)[owner] > 1
        ordered = ordered[several[ordered]] if several.any() else ordered
    size = int(np.ceil(share * len(ordered)))
    mask = np.zeros(len(labels), dtype=bool)
    mask[ordered[np.arange(size) * len(ordered) // size]] = True
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


def task_of(dataset: Dataset) -> str:
    """The name of what a data set's samples are for."""
    if dataset.task or dataset.targets_train is None:
        return dataset.task or "classification"
    return "language-modeling" if dataset.text else tasks.inferred(dataset.targets_train, dataset.x_train.shape[1:])


def as_task(dataset: Dataset, task: str) -> Dataset:
    """The data set for a task that was said: for regression, labels that are numbers become real targets. UserError
    where its targets have not the form that the task needs.
    """
    found, known = task_of(dataset), dataset.known
    if task in (tasks.AUTO, found):
        return dataset
    if found == "classification" and task in tasks.REAL and known is not None and known.dtype.kind in "biuf":
        train, test = (known[y].astype(np.float64) for y in (dataset.y_train, dataset.y_test))
        labels = tasks.bins(train, train), tasks.bins(test, train)
        made = {"targets_train": train, "targets_test": test, "y_train": labels[0], "y_test": labels[1]}
        return replace(dataset, **made, classes=tasks.BINS, known=None, task=task)
    shape = dataset.x_train.shape[1:]
    for y in (
        (dataset.y_train, dataset.y_test)
        if dataset.targets_train is None
        else (dataset.targets_train, dataset.targets_test)
    ):
        tasks.refuse_misfit(task, y, shape)
    return replace(dataset, task=task)
