"""Functions that the splitters share: pools of samples, dealing by counts, bounded redraws, refusals with numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from apiece.data import sound
from apiece.errors import UserError, tried

Parts = list[np.ndarray]  # one array of indices per client
REDRAWS = 1000
LEAST, MOST = 1e-6, 1e9  # beyond these, Dirichlet shares change no more, and their numbers lose precision


def pools(labels: np.ndarray, rng: np.random.Generator) -> Parts:
    """The samples of each class that occurs, shuffled."""
    return [rng.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]


def deal(pools: Parts, counts: np.ndarray) -> Parts:
    """Client i gets the next counts[c, i] samples of pool c, for every c. counts: [C, N]."""
    cuts = [np.split(pool, np.cumsum(row))[: len(row)] for pool, row in zip(pools, counts)]
    return in_order([np.concatenate(own) for own in zip(*cuts)])


def in_order(parts: Parts) -> Parts:
    """Each part sorted, as int64."""
    return [np.sort(part).astype(np.int64) for part in parts]


def cumulative(shares: np.ndarray) -> np.ndarray:
    """Cumulative shares along the last axis, ending at exactly 1."""
    total = np.cumsum(shares, axis=-1)
    return total / total[..., -1:]


def dealt(splitter: Callable[..., Any], labels: np.ndarray, clients: int, *more: Any) -> Parts:
    """What a splitter makes; raises UserError for whatever a program's own raises, and for what are no rows of this
    many clients.
    """
    if type(splitter).__module__.startswith("apiece."):
        return splitter(labels, clients, *more)
    with tried("the split's function of (labels, clients, generator, natural) fails"):
        parts = [np.asarray(part) for part in splitter(labels, clients, *more)]
    whole = all(rows.ndim == 1 and (rows.dtype.kind in "iu" or not len(rows)) for rows in parts)
    rows = np.concatenate(parts) if whole and parts else np.zeros(0)
    if len(parts) != clients or not whole or (len(rows) and not 0 <= rows.min() <= rows.max() < len(labels)):
        raise UserError(
            f"the split's function makes no split: it must give {clients} arrays, one for each client, of the numbers "
            f"of its training samples, whole ones from 0 to {len(labels) - 1}."
        )
    return [rows.astype(np.int64) for rows in parts]


def redraw(splitter: object, draw: Callable[[], np.ndarray], minimum: int) -> np.ndarray:
    """Counts [C, N] from the first draw that gives each client `minimum` samples."""
    best = 0
    for _ in range(REDRAWS):
        counts = draw()
        least = int(counts.sum(axis=0).min())
        if least >= minimum:
            return counts
        best = max(best, least)
    smaller = "a smaller minimum, " if minimum > 1 else ""
    raise UserError(
        f"{splitter}: in {REDRAWS} draws the smallest client never had more than {best} samples, "
        f"it should have {minimum}; ask for {smaller}fewer clients or a larger alpha."
    )


def owned(splitter: object, natural: np.ndarray | None, otherwise: str) -> np.ndarray:
    """The owner of each sample; UserError where the data lack the owners of all samples or of some."""
    if natural is None:
        raise UserError(
            f"{splitter}: this data set does not say whose each sample is; name a table's column of owners "
            f"(--client-column), or {otherwise}."
        )
    gone = int(sound.missing(natural).sum())
    if gone:
        raise UserError(
            f"{splitter}: the owner of {gone} of {len(natural)} samples is missing; drop these or {otherwise}."
        )
    return natural


def check(splitter: object, samples: int, clients: int, minimum: int = 1, **alphas: float) -> None:
    """Refuse what is impossible: alphas that are not positive, or more clients than there are samples for."""
    for name, alpha in alphas.items():
        if not LEAST <= alpha <= MOST:
            raise UserError(
                f"{splitter}: {name} is {alpha}; it must be a positive number from {LEAST:g} (a class goes to one "
                f"client) to {MOST:g} (to all alike)."
            )
    if minimum < 1:
        raise UserError(f"{splitter}: each client needs a sample at least, not {minimum}; ask for 1 or more.")
    if not 1 <= clients <= samples // minimum:
        raise UserError(
            f"{splitter}: {samples} samples are too few or {clients} clients too many for {minimum} each; "
            f"ask for 1 to {samples // minimum} clients."
        )


def systematic(part: np.ndarray, labels: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """floor(share n) samples at equal steps through shuffled samples in order of class: each class in proportion."""
    size = int(share * len(part) + 1e-9)
    shuffled = rng.permutation(part)
    ordered = shuffled[np.argsort(labels[shuffled], kind="stable")]
    steps = (np.arange(size) + rng.random()) * (len(part) / max(size, 1))
    return np.sort(ordered[steps.astype(int)])
