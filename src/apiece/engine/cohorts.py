"""Who takes part in a round: cohorts, and who of them does not answer, from streams of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from apiece.randomness import generator


def in_order(names: Sequence[str], among: Sequence[int]) -> Sequence[int]:
    """These clients in the order of their names; a range of names that ascend as their numbers do is in order
    already.
    """
    ascending = getattr(names, "ascending", False) and isinstance(among, range)
    return among if ascending else sorted(among, key=names.__getitem__)


def cohort(seed: int, round: int, names: Sequence[str], among: Sequence[int], size: int) -> list[int]:
    """A cohort of fixed size without replacement, from its own stream: every algorithm sees the same ones.

    Drawn in the order of names, so that the order in which clients are listed changes nothing.
    """
    order = in_order(names, among)
    chosen = generator(seed, "cohort", round).choice(len(order), size, replace=False)
    return [order[i] for i in sorted(chosen)]


def bernoulli_cohort(seed: int, round: int, names: Sequence[str], among: Sequence[int], share: float) -> list[int]:
    """Each client takes part with probability `share`; an empty draw is drawn again."""
    order = in_order(names, among)
    rng = generator(seed, "cohort", round)
    while True:
        chosen = np.flatnonzero(rng.random(len(order)) < share).tolist()
        if chosen:
            return [order[i] for i in chosen]


def absent(seed: int, round: int, names: list[str], cohort: list[int], share: float) -> frozenset[int]:
    """Which of the cohort do not answer: each with probability `share`, by name."""
    if not share:
        return frozenset()
    return frozenset(c for c in cohort if generator(seed, "absent", round, names[c]).random() < share)
