"""The losses of the tasks beside classification: means over a batch, functions of (outputs, targets)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from apiece.errors import UserError
from apiece.vector.task import over_targets, scores


def aligned(outputs: Any, y: Tensor) -> Tensor:
    """Outputs in the shape of the targets: [B, 1] beside [B] becomes [B], and the reverse, so that the two never
    broadcast to [B, B]. UserError where they have other shapes.
    """
    found = scores(outputs)
    if found.shape == y.shape:
        return found
    if trailing(found, y):
        return found.reshape(y.shape)
    raise UserError(
        f"the model gives {list(found.shape[1:])} for a sample whose target is {list(y.shape[1:])}: let its last layer "
        f"give {y[0].numel()} number{'s' if y[0].numel() > 1 else ''}, in the shape of the target."
    )


def trailing(outputs: Tensor, y: Tensor) -> bool:
    """Whether the shapes of outputs and targets differ only by a last axis of 1."""
    return outputs.shape == (*y.shape, 1) or y.shape == (*outputs.shape, 1)


@dataclass(frozen=True)
class Aligned:
    """A function of outputs and targets of one shape, for outputs [B, 1] beside targets [B]."""

    function: Callable[[Any, Any], Any]

    def __call__(self, outputs: Any, y: Tensor) -> Any:
        return self.function(aligned(outputs, y), y)


@dataclass(frozen=True)
class OfWhole:
    """A function of outputs and whole numbers, for targets that are 0 or 1 as floats."""

    function: Callable[[Any, Any], Any]

    def __call__(self, outputs: Any, y: Tensor) -> Any:
        return self.function(outputs, y.long())


def squared_error(outputs: Any, y: Tensor) -> Tensor:
    """mean (outputs - y)^2."""
    return F.mse_loss(aligned(outputs, y), y)


def by_label(outputs: Any, y: Tensor) -> Tensor:
    """Mean binary cross entropy of scores [B, k] against 0 or 1 [B, k], by logits."""
    found = aligned(outputs, y)
    return F.binary_cross_entropy_with_logits(found, y.to(found.dtype))


def by_pixel(outputs: Any, y: Tensor) -> Tensor:
    """Mean cross entropy over the pixels that are not IGNORED: scores [B, C, H, W] against classes [B, H, W]."""
    return over_targets(classes_second(scores(outputs), y), y)


def classes_second(outputs: Tensor, y: Tensor) -> Tensor:
    """Scores of pixels as [B, C, H, W], also where a model gives [B, H, W, C]."""
    return outputs if outputs.shape[2:] == y.shape[1:] else outputs.movedim(-1, 1)
