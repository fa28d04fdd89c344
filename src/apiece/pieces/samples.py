"""What pieces compute of a client's labels and of scores: label counts, probabilities, their divergence."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from apiece.algebra.view import View
from apiece.data.tasks import UNLABELED
from apiece.errors import UserError


def several(view: View) -> bool:
    """Whether a sample can have several labels: its target is then [C], each entry 0 or 1."""
    return _labeled(view) and _targets(view).dim() > 1


def one_class(view: View) -> bool:
    """Whether a sample has exactly one label, the number of a class."""
    y = _targets(view)
    return _labeled(view) and y.dim() < 2 and not y.is_floating_point()


def refuse_unlabeled(view: View, piece: str) -> None:
    """Raise UserError where a model's outputs for a sample are no scores of classes or labels."""
    if not _labeled(view):
        name = view.task.task.name
        raise UserError(f"{piece} compares probabilities of classes, and task={name!r} has none: take it out.")


def _labeled(view: View) -> bool:
    return view.task.task.name not in UNLABELED


def input_shape(view: View, labeled: bool, refusal: str) -> tuple[int, ...]:
    """The shape of one input; UserError with the text `refusal` where inputs are no real numbers or not `labeled`."""
    x = view.data.pool[0]
    if not labeled or not isinstance(x, Tensor) or not x.is_floating_point():
        raise UserError(refusal)
    return tuple(x.shape[1:])


def _targets(view: View) -> Tensor:
    y = view.data.pool[1]
    if not isinstance(y, Tensor):
        raise UserError("the algorithm reads labels, and the targets have several parts: take one that does not.")
    return y


def label_columns(y: Any, classes: int, task: str, dtype: torch.dtype, refusal: str) -> Tensor:
    """The labels of samples as columns of 0 and 1, [B, C]; UserError with the text `refusal` for other targets."""
    whole = isinstance(y, Tensor) and not y.is_floating_point()
    if not isinstance(y, Tensor) or task in UNLABELED or (whole and y.dim() > 1 and task != "multilabel"):
        raise UserError(refusal)
    if not whole:
        return y
    return (y if y.dim() > 1 else y[:, None] == torch.arange(classes, device=y.device)).to(dtype)


def class_counts(view: View, classes: int) -> Tensor:
    """How many of the client's samples have each label: int64 [C]."""
    y = _targets(view)[view.data.index]
    here = (torch.arange(len(y), device=y.device) < view.data.size)[:, None]
    bears = y if y.dim() > 1 else y[:, None] == torch.arange(classes, device=y.device)
    return torch.where(here, bears, 0).sum(0).round().to(torch.int64)


def log_probabilities(outputs: Tensor, several: bool) -> Tensor:
    """Log probabilities of classes, [B, C]; where there are several labels, of having and lacking each, [B, C, 2]."""
    if several:
        return torch.stack([F.logsigmoid(outputs), F.logsigmoid(-outputs)], dim=-1)
    return F.log_softmax(outputs, dim=-1)


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) from log probabilities, the mean over samples."""
    return (p.exp() * (p - q)).sum(-1).mean()
