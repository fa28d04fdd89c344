"""The metrics that have a name, for each task, and the loss that a task has unless another is given.

Over samples, unless said otherwise: a client's value is that of all its test samples together. A value that a client's
samples do not define (AUROC of one class, R2 of one target) is NaN, and is left out of means over clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from apiece.data.tokens import IGNORED
from apiece.vector.losses import aligned, by_label, by_pixel, classes_second, squared_error
from apiece.vector.metric import Metric
from apiece.vector.task import ACCURACY, cross_entropy, scores, targets


def of_numbers(metric: Callable[[Any, Tensor], Tensor]) -> Callable[[Any, Tensor], Tensor]:
    """The metric over samples, NaN for each sample with a score of NaN whose target is not IGNORED: comparisons and
    argmax make plausible numbers of NaN.
    """

    @wraps(metric)
    def values(outputs: Any, y: Tensor) -> Tensor:
        found, number = metric(outputs, y), scores(outputs)
        pixels = number.dim() == y.dim() + 1 > 2
        lost = (classes_second(number, y).amax(1).isnan() & (y != IGNORED)) if pixels else number.isnan()
        return found.masked_fill(lost.reshape(len(y), -1).any(1).view(-1, *[1] * (found.dim() - 1)), torch.nan)

    return values


# --- classes ---------------------------------------------------------------------------------------------------------
@of_numbers
def class_counts(outputs: Any, y: Tensor) -> Tensor:
    """For each class whether it is right, predicted, and true: [B, 3, C] for scores [B, C] and labels [B]."""
    found = scores(outputs)
    classes = torch.arange(found.shape[-1], device=y.device)
    predicted, true = found.argmax(-1)[:, None] == classes, y[:, None] == classes
    return torch.stack([predicted & true, predicted, true], 1).to(torch.float64)


def mean_f1(counts: Tensor) -> Tensor:
    """The mean of 2 right / (predicted + true) over the classes that are predicted or true: [3, C] -> []."""
    right, predicted, true = counts
    some = predicted + true > 0
    return (2 * right[some] / (predicted + true)[some]).mean()


def class_auroc(outputs: Any, y: Tensor) -> Tensor:
    """The mean area under the ROC curve of each class against the others, for scores [n, C] and labels [n].

    Class c is ranked by log(p_c / (1 - p_c)) in float64, for p = softmax(scores): p itself rounds to ties at 1.
    """
    found = scores(outputs).double()
    found = found - found.amax(-1, keepdim=True)
    classes = torch.arange(found.shape[-1], device=y.device)
    highest = found.argmax(-1)[:, None] == classes
    beside_highest = found.masked_fill(highest, -torch.inf).logsumexp(-1, keepdim=True)
    others = torch.where(highest, beside_highest, (found.exp().sum(-1, keepdim=True) - found.exp()).log())
    return mean_auroc(found - others, y[:, None] == classes)


def mean_auroc(found: Tensor, true: Tensor) -> Tensor:
    """mean_c P(score of a positive > score of a negative) + P(equal) / 2, for scores and truth [n, C]; over the columns
    that have both; NaN where a score of one of these is.
    """
    areas = [_area(column, own) for column, own in zip(found.T, true.T, strict=True) if own.any() and not own.all()]
    return torch.stack(areas).mean() if areas else found.new_full((), torch.nan, dtype=torch.float64)


def _area(found: Tensor, true: Tensor) -> Tensor:
    if found.isnan().any():
        return found.new_full((), torch.nan, dtype=torch.float64)
    found = found.contiguous()
    ordered = found.sort().values
    below, upto = torch.searchsorted(ordered, found), torch.searchsorted(ordered, found, right=True)
    ranks = (below + 1 + upto).to(torch.float64) / 2  # from 1; equal scores share the mean
    positives, negatives = int(true.sum()), int((~true).sum())
    return (ranks[true].sum() - positives * (positives + 1) / 2) / (positives * negatives)


# --- several labels --------------------------------------------------------------------------------------------------
@of_numbers
def label_accuracy(outputs: Any, y: Tensor) -> Tensor:
    """The share of a sample's labels that are right, by scores above 0: [B]."""
    return ((aligned(outputs, y) > 0) == (y > 0.5)).to(torch.float64).mean(1)


@of_numbers
def label_counts(outputs: Any, y: Tensor) -> Tensor:
    """How many of a sample's labels are right, predicted, and true: [B, 3]."""
    predicted, true = aligned(outputs, y) > 0, y > 0.5
    return torch.stack([(predicted & true).sum(1), predicted.sum(1), true.sum(1)], 1).to(torch.float64)


def joint_f1(counts: Tensor) -> Tensor:
    """2 right / (predicted + true) of all labels together: [3] -> []."""
    right, predicted, true = counts
    return 2 * right / (predicted + true)


@of_numbers
def counts_by_label(outputs: Any, y: Tensor) -> Tensor:
    """For each label whether it is right, predicted, and true: [B, 3, k], by scores above 0."""
    predicted, true = aligned(outputs, y) > 0, y > 0.5
    return torch.stack([predicted & true, predicted, true], 1).to(torch.float64)


def mean_precision(counts: Tensor) -> Tensor:
    """The mean of right / predicted over the labels that are predicted or true, 0 if not predicted: [3, k] -> []."""
    right, predicted, true = counts
    return _mean_ratio(right, predicted, predicted + true)


def mean_recall(counts: Tensor) -> Tensor:
    """The mean of right / true over the labels that are predicted or true, 0 if not true: [3, k] -> []."""
    right, predicted, true = counts
    return _mean_ratio(right, true, predicted + true)


def _mean_ratio(right: Tensor, of: Tensor, some: Tensor) -> Tensor:
    return torch.where(of > 0, right / of, 0.0)[some > 0].mean()


def label_auroc(outputs: Any, y: Tensor) -> Tensor:
    """The mean area under the ROC curve over the labels, for scores and labels [n, k]."""
    return mean_auroc(aligned(outputs, y), y > 0.5)


# --- real targets ----------------------------------------------------------------------------------------------------
def squared_errors(outputs: Any, y: Tensor) -> Tensor:
    """(outputs - y)^2, the mean over a sample's numbers: [B]."""
    return (aligned(outputs, y).double() - y.double()).square().reshape(len(y), -1).mean(1)


def absolute_errors(outputs: Any, y: Tensor) -> Tensor:
    """|outputs - y|, the mean over a sample's numbers: [B]."""
    return (aligned(outputs, y).double() - y.double()).abs().reshape(len(y), -1).mean(1)


def squares(outputs: Any, y: Tensor) -> Tensor:
    """(y, y^2, (y - outputs)^2) of a sample's numbers: [B, 3, k]."""
    true, found = (part.double().reshape(len(y), -1) for part in (y, aligned(outputs, y)))
    return torch.stack([true, true.square(), (true - found).square()], 1)


def determination(means: Tensor) -> Tensor:
    """R^2 = 1 - mean (y - outputs)^2 / variance of y, the mean over a sample's numbers: [3, k] -> []."""
    mean, square, error = means
    variance = square - mean.square()
    return (1 - error / torch.where(variance > 1e-12 * square, variance, torch.nan)).mean()


# --- pixels and tokens -----------------------------------------------------------------------------------------------
@of_numbers
def pixel_accuracy(outputs: Any, y: Tensor) -> Tensor:
    """The share of an image's pixels that are right, of those not IGNORED: [B]."""
    right = classes_second(scores(outputs), y).argmax(1) == y
    return right.flatten(1).sum(1, dtype=torch.float64) / targets(y).clamp(min=1)


@of_numbers
def overlaps(outputs: Any, y: Tensor) -> Tensor:
    """The pixels of each class that are predicted and true, and that are either, over all of an image: [B, 2, C]."""
    found = classes_second(scores(outputs), y)
    known, predicted = (y != IGNORED).flatten(1), found.argmax(1).flatten(1)
    parts = list[Tensor]()
    for c in range(found.shape[1]):
        one, other = (predicted == c) & known, y.flatten(1) == c
        parts.append(torch.stack([(one & other).sum(1), (one | other).sum(1)], 1))
    return torch.stack(parts, 2).double() / targets(y).clamp(min=1)[:, None, None]


def mean_iou(means: Tensor) -> Tensor:
    """The mean of intersection over union, over the classes that are predicted or true: [2, C] -> []."""
    both, either = means
    return (both[either > 0] / either[either > 0]).mean()


def token_losses(outputs: Any, y: Tensor) -> Tensor:
    """The cross entropy of a text's tokens, their mean over those not IGNORED: [B]."""
    found = scores(outputs)
    each = F.cross_entropy(found.flatten(0, -2), y.flatten(), ignore_index=IGNORED, reduction="none")
    return each.double().view(len(y), -1).sum(1) / targets(y).clamp(min=1)


# --- by name ---------------------------------------------------------------------------------------------------------
class Usual(NamedTuple):
    """What a task has unless other things are given: its loss, and the metrics of which the first `shown` are taken."""

    loss: Callable[[Any, Any], Tensor]
    said: str
    metrics: Sequence[Metric]
    shown: int = 1


ERRORS = (
    Metric("mae", absolute_errors, higher=False),
    Metric("r2", squares, finish=determination),
    Metric("rmse", squared_errors, higher=False, finish=torch.sqrt),
    Metric("mse", squared_errors, higher=False),
)
FORECASTS = (ERRORS[3], *ERRORS[:3])
CLASSES = (ACCURACY, Metric("f1", class_counts, unit="%", finish=mean_f1), Metric("auroc", class_auroc, over="all"))
LABELS = (
    Metric("f1", label_counts, unit="%", finish=joint_f1),
    Metric("accuracy", label_accuracy, unit="%"),
    Metric("auroc", label_auroc, over="all"),
    Metric("class_f1", counts_by_label, unit="%", finish=mean_f1),
    Metric("class_precision", counts_by_label, unit="%", finish=mean_precision),
    Metric("class_recall", counts_by_label, unit="%", finish=mean_recall),
)
PIXELS = (Metric("iou", overlaps, unit="%", finish=mean_iou), Metric("accuracy", pixel_accuracy, unit="%"))
TOKENS = (ACCURACY, Metric("perplexity", token_losses, higher=False, finish=torch.exp))
USUAL = {
    "classification": Usual(cross_entropy, "cross entropy", CLASSES),
    "multilabel": Usual(by_label, "binary cross entropy of each label", LABELS, 2),
    "regression": Usual(squared_error, "mean squared error", ERRORS, 2),
    "segmentation": Usual(by_pixel, "cross entropy of each pixel", PIXELS, 2),
    "forecasting": Usual(squared_error, "mean squared error", FORECASTS, 2),
    "language-modeling": Usual(cross_entropy, "cross entropy of each token", TOKENS),
    "your own": Usual(cross_entropy, "cross entropy", CLASSES),
}
BUILT_IN = frozenset(metric for usual in USUAL.values() for metric in usual.metrics)
LOSSES = frozenset(usual.loss for usual in USUAL.values())
