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
        gaps.append(float((a.double() - b.double()).abs().max()) if a.numel() else 0.0)
        return gaps[-1] < TOLERANCE

    compare(law, trial.subject, (one.server, rows_of(one)), (two.server, rows or rows_of(two)), close, why)
    return max(gaps)


def compare(
    law: str,
    subject: Algorithm,
    one: Any,
    two: Any,
    holds: Callable[[Tensor, Tensor], bool],
    why: Callable[[float], str] = lambda gap: "",
) -> None:
    (left, spec), (right, other) = tree_flatten(one), tree_flatten(two)
    assert spec == other, f"{law}: {subject.name} keeps other things"
    for a, b in zip(left, right, strict=True):
        a, b = torch.as_tensor(a), torch.as_tensor(b)
        assert bool(torch.isfinite(a).all()), f"{law}: {subject.name} is not finite on the contract's problem{FINITE}"
        gap = float((a.double() - b.double()).abs().max()) if a.numel() and a.shape == b.shape else float("nan")
        fits = a.shape == b.shape and a.dtype == b.dtype
        assert fits and holds(a, b), f"{law}: {subject.name} differs by {gap:.3g}{why(gap)}"
