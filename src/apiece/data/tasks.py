"""What is to be learned of samples, read off their targets: the name of a task.

labels [n], whole numbers or texts                     classification
0 or 1 [n, k], k >= 2                                  multilabel: a sample may have several labels
real numbers [n] or [n, k]                             regression; forecasting only where this is said
whole numbers [n, H, W] beside images [n, ..., H, W]   segmentation
whole numbers [n, T], T >= 2                           language-modeling: a token for each position
"""

from __future__ import annotations

from typing import Any

import numpy as np

from apiece.errors import UserError

AUTO, OWN = "auto", "your own"  # a task that is to be inferred; one that has no name
TASKS = ("classification", "multilabel", "regression", "segmentation", "forecasting", "language-modeling")
REAL = ("regression", "forecasting")  # their targets are real numbers
UNLABELED = (*REAL, "segmentation")  # in these a sample as a whole has no label
TOLD = ("classification", "language-modeling", OWN)  # these need not be said when a run begins
FORMS = {
    "classification": "one label a sample, whole numbers or texts [n]",
    "multilabel": "0 or 1 for each label, [n, k] with k of 2 or more",
    "regression": "real numbers [n] or [n, k]",
    "segmentation": "a class for each pixel, whole numbers [n, H, W] beside images of that size",
    "forecasting": "real numbers [n], [n, T] or [n, T, C]",
    "language-modeling": "a token for each position, whole numbers [n, T]",
}
BINS = 10  # equal parts of the samples by their target, which stand for labels where a split needs some
DISTINCT, REPEATED = 20, 10  # more whole floats than this, each in fewer samples than that, are no labels


def inferred(y: Any, x: tuple[int, ...] = ()) -> str:
    """The task whose targets are `y` [n, ...], for samples of shape `x`; OWN where no task has such targets."""
    if not isinstance(y, np.ndarray) or not y.ndim:
        return OWN
    if y.ndim == 1:
        return "regression" if y.dtype.kind == "f" and not _labels(y) else "classification"
    if y.dtype.kind == "f":
        return "multilabel" if _binary(y) else "regression" if y.ndim == 2 else OWN
    if y.dtype.kind not in "biu":
        return OWN
    if y.ndim == 2 and y.shape[1] > 1:
        return "multilabel" if _binary(y) and tuple(y.shape[1:]) != x else "language-modeling"
    return "segmentation" if y.ndim == 3 and tuple(y.shape[1:]) in (x[:2], x[1:]) else OWN


def fits(task: str, y: Any, x: tuple[int, ...] = ()) -> bool:
    """Whether the targets `y` [n, ...] of samples of shape `x` have the form that a task needs."""
    if not isinstance(y, np.ndarray) or not y.ndim:
        return False
    real, whole = y.dtype.kind == "f", y.dtype.kind in "biu"
    return {
        "classification": y.ndim == 1 and (not real or bool((y == np.rint(y)).all())),
        "multilabel": y.ndim == 2 and y.shape[1] > 1 and (real or whole) and bool(((0 <= y) & (y <= 1)).all()),
        "regression": real and y.ndim <= 2,
        "forecasting": real and y.ndim <= 3,
        "segmentation": whole and y.ndim == 3 and tuple(y.shape[1:]) in (x[:2], x[1:]),
        "language-modeling": whole and y.ndim == 2,
        OWN: True,
    }[task]


def refuse_misfit(task: str, y: Any, x: tuple[int, ...] = ()) -> None:
    """Raise UserError where targets `y` [n, ...] of samples of shape `x` have not the form that the task needs."""
    if fits(task, y, x):
        return
    found = inferred(y, x)
    held = (
        f"{y.dtype} of shape {['n', *y.shape[1:]]}".replace("'", "")
        if isinstance(y, np.ndarray)
        else f"a {type(y).__name__}"
    )
    instead = f", or leave the task out, which is {found} then" if found not in (OWN, task) else ""
    raise UserError(f"task={task!r} needs {FORMS[task]}, and the targets are {held}: give such targets{instead}.")


def bins(y: np.ndarray, like: np.ndarray) -> np.ndarray:
    """The number of each real target's bin, 0 to BINS - 1, int64 [n]; the bins divide `like` into equal parts."""
    edges = np.quantile(like, np.arange(1, BINS) / BINS)
    return np.searchsorted(edges, y, side="right").astype(np.int64)


def one_hot(y: np.ndarray) -> bool:
    """Whether each row has a single 1, as classes do that are written in columns."""
    return bool(len(y)) and y.ndim == 2 and _binary(y) and bool((y.sum(1) == 1).all())


def _binary(y: np.ndarray) -> bool:
    """Whether there are two columns or more, of 0 and 1 alone."""
    return y.ndim == 2 and y.shape[1] > 1 and bool(np.isin(y, (0, 1)).all())


def _labels(y: np.ndarray) -> bool:
    """Whether floats [n] are labels: whole numbers where they are known, and 0, 1, ... or few different ones."""
    y = y[np.isfinite(y)]
    if not (y == np.rint(y)).all():
        return False
    return not whole_amounts(np.unique(y), len(y))


def whole_amounts(known: Any, samples: int) -> bool:
    """Whether the different whole numbers, in their order, that are targets of so many samples look like amounts: there
    are many, which hardly repeat, and they are not 0, 1, ...
    """
    different = len(known)
    return different > DISTINCT and samples < REPEATED * different and not np.array_equal(known, np.arange(different))
