"""Whether two runs of the contract's problem are the same, to the bit or but for rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from apiece.algebra.composition import Algorithm
from apiece.contract.trial import NAMES, Here, Trial

TOLERANCE = 1e-10
REPEATS = (
    "does not repeat: declare in the slot `draws` what is drawn at random, read no clock, and keep nothing between "
    "calls but in the memory that slots return"
)
FINITE = (
    ": look in its slots for a division by zero and for a mean of no samples; clients there have from 0 to 26 samples, "
    "and some take no step"
)


def rows_of(here: Here) -> list[dict[str, Tensor]]:
    return [here.clients.row(client)[0] for client in range(len(NAMES))]


def same(law: str, trial: Trial, one: Here, two: Here) -> None:
    equal(law, trial.subject, one.server, two.server)
    assert one.clients.rows.digest() == two.clients.rows.digest(), f"{law}: rows differ under {trial.subject.name}"


def equal(law: str, subject: Algorithm, one: Any, two: Any) -> None:
    compare(law, subject, one, two, lambda a, b: torch.equal(a, b))


def alike(one: Any, two: Any) -> bool:
    """Whether two trees of tensors and numbers are the same within TOLERANCE."""
    (left, spec), (right, other) = tree_flatten(one), tree_flatten(two)
    pairs = zip(map(torch.as_tensor, left), map(torch.as_tensor, right))
    return spec == other and all(a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=TOLERANCE) for a, b in pairs)


def close(
    law: str, trial: Trial, one: Here, two: Here, rows: list | None = None, why: Callable[[float], str] = lambda gap: ""
) -> float:
    """The largest difference between two runs; AssertionError, with what `why` says of it, if it is no rounding."""
    gaps = [0.0]

    def close(a: Tensor, b: Tensor) -> bool:
        gaps.append(_gap(a, b))
        return gaps[-1] < TOLERANCE

    compare(law, trial.subject, one.server, two.server, close, why)
    compare(law, trial.subject, rows_of(one), rows or rows_of(two), close, why, finite=False)
    return max(gaps)


def _gap(a: Tensor, b: Tensor) -> float:
    """The largest difference between two tensors of one shape; the same infinity, or NaN, in both is none."""
    same = (a == b) | (a.isnan() & b.isnan())
    return float((a.double() - b.double()).where(~same, 0).abs().max()) if a.numel() else 0.0


def compare(
    law: str,
    subject: Algorithm,
    one: Any,
    two: Any,
    holds: Callable[[Tensor, Tensor], bool],
    why: Callable[[float], str] = lambda gap: "",
    finite: bool = True,
) -> None:
    """AssertionError where a leaf of one tree does not hold against the other's, or is not finite: a row may begin so,
    as `client_memory` made it, and a round itself refuses what a client makes of it.
    """
    (left, spec), (right, other) = tree_flatten(one), tree_flatten(two)
    assert spec == other, f"{law}: {subject.name} keeps other things"
    for a, b in zip(left, right, strict=True):
        a, b = torch.as_tensor(a), torch.as_tensor(b)
        unfit = f"{law.partition(' (')[0]}: {subject.name} is not finite on the contract's problem{FINITE}"
        assert not finite or bool(torch.isfinite(a).all()), unfit
        gap = _gap(a, b) if a.shape == b.shape else float("nan")
        fits = a.shape == b.shape and a.dtype == b.dtype
        assert fits and holds(a, b), f"{law}: {subject.name} differs by {gap:.3g}{why(gap)}"
