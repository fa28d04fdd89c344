"""A metric: what is measured of predictions, which of two values is better, and in which unit it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from torch import Tensor


class Metric(NamedTuple):
    """A function of (outputs, targets) under a name.

    `higher`: whether a higher value is better. `unit`: "%" for a share of 1, shown in percent, or any other text, such
    as "kg". `over`: "samples" if the function gives each sample a value, [B], of which a client's is the mean, weighted
    by the number of the sample's targets; "all" if it takes all of a client's predictions at once and gives one number
    (F1, AUROC). A function over samples may also give several values a sample, [B, ...], and `finish` make the client's
    number of their mean [...]: sqrt for the root mean squared error.

    >>> from apiece import federate
    >>> def top2(outputs, y):
    ...     return (outputs.topk(2).indices == y[:, None]).any(1).float()
    >>> shown = Metric("top2", top2, unit="%")
    >>> result = federate("softmax_regression", "digits", clients=5, rounds=2, steps=5, metrics=[shown, "accuracy"])
    >>> result.metrics[-1]["global_top2"] >= result.metrics[-1]["global_accuracy"]
    True
    """

    name: str
    function: Callable[[Any, Any], Tensor]
    higher: bool = True
    unit: str = ""
    over: Literal["samples", "all"] = "samples"
    finish: Callable[[Tensor], Tensor] | None = None
