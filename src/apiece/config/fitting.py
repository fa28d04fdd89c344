"""A loss and metrics as they fit a model's outputs: tried on a few samples before anything is trained."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from numbers import Real
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from apiece.algebra.trees import versions
from apiece.data.tasks import REAL, UNLABELED
from apiece.errors import UserError, typed
from apiece.vector.losses import Aligned, OfWhole, trailing
from apiece.vector.metric import Metric
from apiece.vector.task import ACCURACY, scores


@contextmanager
def unchanged(who: str, outputs: Any, y: Any) -> Iterator[None]:
    """Raise UserError where a loss or a metric, `who`, changes its outputs or targets in place in this context."""
    leaves = [leaf for leaf in tree_leaves((outputs, y)) if isinstance(leaf, Tensor)]
    before = versions(leaves)
    yield
    if versions(leaves) != before:
        raise UserError(
            f"{who} changes its outputs or targets in place, from which other numbers are made too: let it make new "
            "tensors, as y.clamp(min=0) for y.clamp_(min=0)."
        )


def refuse_outputs(task: str, outputs: Any, y: Any, classes: int) -> None:
    """Raise UserError where a model's outputs for a few samples are not what the usual loss of the task takes."""
    found = scores(outputs)
    if not isinstance(found, Tensor) or not isinstance(y, Tensor):
        what = f"model gives a {type(outputs).__name__}" if isinstance(y, Tensor) else f"target is a {type(y).__name__}"
        raise UserError(
            f"the {what}, and the usual loss and metric take a tensor of scores: give a loss and a metric of your own."
        )
    if task == "segmentation":
        size, given = list(y.shape[1:]), list(found.shape[1:])
        if found.dim() != 4 or (given[1:] != size and given[:-1] != size) or max(given[0], given[-1]) < classes:
            raise UserError(
                f"the model's output has shape {given} per sample, and pixels may be of class 0 to {classes - 1}: it "
                f"must give {[classes, *size]}, a score for each class and pixel (pixels of class -100 are left out)."
            )
    elif y.dim() < 2 and task not in UNLABELED and (found.dim() != 2 or found.shape[1] < classes):
        raise UserError(
            f"the model's output has shape {list(found.shape[1:])} per sample, but there are {classes} classes: its "
            f"last layer must give {classes} scores, one for each class from 0 on."
        )


def refuse_wider(task: str, trained: Any, evaluated: Any) -> None:
    """Raise UserError where a model for real targets gives outputs of another shape as it trains."""
    one, other = scores(trained), scores(evaluated)
    if task in REAL and isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape != other.shape:
        raise UserError(
            f"the model gives {list(one.shape[1:])} for a sample as it trains and {list(other.shape[1:])} as it is "
            "evaluated, and real targets have one shape: give the same in both. VHL, which widens a classifier, needs "
            "labels that are classes."
        )


class Broadcasts(TorchFunctionMode):
    """Notes whether an operation joins predictions [B, 1] with targets [B], or the reverse, to a table [B, B].

    What is made of predictions is told from what is not by following each operation from the predictions on.
    """

    def __init__(self, predictions: Tensor) -> None:
        super().__init__()
        self.met, self._predicted = False, {predictions}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        parts = [part for part in tree_leaves((args, kwargs)) if isinstance(part, Tensor)]
        ours = [part for part in parts if part in self._predicted]
        others = [part for part in parts if part not in self._predicted]
        if func is not Tensor.__getitem__:  # an index says which samples are taken
            self.met = self.met or any(trailing(one, other) for one in ours for other in others)
        found = func(*args, **(kwargs or {}))
        if ours:
            self._predicted.update(part for part in tree_leaves(found) if isinstance(part, Tensor))
        return found


def fitting_shape(function: Callable[[Any, Any], Any], outputs: Any, y: Any) -> Callable[[Any, Any], Any]:
    """The function, given outputs in the shape of the targets where their shapes differ by a last axis of 1, [B, 1]
    beside [B], and the function itself would make [B, B] of them, or fail, but takes outputs in that shape.
    """
    found = scores(outputs)
    if not isinstance(found, Tensor) or not isinstance(y, Tensor) or not trailing(found, y):
        return function
    watched, fitted = Broadcasts(found), Aligned(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with watched:
                function(found, y)
        except IndexError:  # it asks for another output than the one there is
            return function
        except Exception:  # what the function raises is told where it is called
            watched.met = True
        if watched.met:
            with suppress(Exception):  # as cross entropy, which has no other form
                fitted(found, y)
                return fitted
    return function


def fitting_kind(function: Callable[[Any, Any], Any], outputs: Any, y: Any) -> Callable[[Any, Any], Any]:
    """The function, given targets as whole numbers where they are several labels and it does not take them as floats,
    as a loss does.
    """
    if not isinstance(y, Tensor) or not y.is_floating_point() or y.dim() < 2 or not ((y == 0) | (y == 1)).all():
        return function
    for tried in (function, OfWhole(function)):
        with suppress(Exception), warnings.catch_warnings():  # what both raise is told where it is called
            warnings.simplefilter("ignore")
            tried(outputs, y)
            return tried
    return function


def fitting_metric(metric: Metric, outputs: Any, y: Any, count: int) -> Metric:
    """The metric, marked whether it gives each of these `count` samples a value or all of them one. UserError where it
    gives anything else.
    """
    with unchanged(f"the metric {metric.name!r}", outputs, y):
        function = fitting_kind(fitting_shape(metric.function, outputs, y), outputs, y)
    if metric is ACCURACY and (not isinstance(scores(outputs), Tensor) or scores(outputs).shape[-1:] == (1,)):
        what = "one number per sample" if isinstance(scores(outputs), Tensor) else f"a {type(outputs).__name__}"
        raise UserError(f"the model gives {what}, which has no accuracy: give a metric of your own.")
    if metric.finish is not None:
        return metric._replace(function=function)
    try:
        with warnings.catch_warnings(), unchanged(f"the metric {metric.name!r}", outputs, y):
            warnings.simplefilter("ignore")  # three samples may lack a class
            found = function(outputs, y)
            fewer = function(*tree_map(lambda leaf: leaf[: count - 1], (outputs, y)))
    except UserError:
        raise
    except Exception as error:  # the user's function may raise anything
        raise UserError(f"the metric {metric.name!r} fails: {typed(error)}.") from error
    sizes = [_size(found), _size(fewer)]
    if sizes == [count, count - 1]:
        return metric._replace(function=function, over="samples")
    if sizes == [1, 1]:
        return metric._replace(function=function, over="all")
    what = f"{sizes[0]} numbers" if sizes[0] else f"a {type(found).__name__}"
    raise UserError(
        f"the metric {metric.name!r} gives {what} for {len(tree_leaves(y)[0])} samples: it must give one value per "
        "sample, as a tensor, or one number for all."
    )


def _size(found: Any) -> int:
    """How many numbers a metric gave; 0 for what is neither a tensor nor a number."""
    if isinstance(found, Tensor):
        return found.numel()
    return int(isinstance(found, Real))
