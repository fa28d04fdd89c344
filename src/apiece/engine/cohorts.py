"""Who takes part in a round: cohorts, and who of them does not answer, from streams of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from reprlib import repr as cut
from typing import Any

import numpy as np

from apiece.errors import UserError, said
from apiece.randomness import generator

Sampling = Callable[[int, np.random.Generator, int], Any]  # (round, generator, clients) -> the places of some of them


def in_order(names: Sequence[str], among: Sequence[int]) -> Sequence[int]:
    """These clients in the order of their names; a range of names that ascend as their numbers do is in order
    already.
    """
    ascending = getattr(names, "ascending", False) and isinstance(among, range)
    return among if ascending else sorted(among, key=names.__getitem__)


def different(clients: Iterable[int], registered: int) -> list[int]:
    """These clients as a list; raises UserError where one stands twice, or is not registered."""
    chosen = list(clients)
    if len(set(chosen)) < len(chosen) or not all(0 <= client < registered for client in chosen):
        raise UserError(f"{cut(chosen)} is no cohort: give different clients, by numbers from 0 to {registered - 1}.")
    return chosen


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


def given_cohort(sampling: Sampling, seed: int, round: int, among: Sequence[int]) -> list[int]:
    """The clients that a program's function chooses: places in `among`, where the order of a cohort changes nothing.

    Raises UserError if they are not different whole numbers from 0 to below the number of clients, at least one.
    """
    count = len(among)
    try:
        chosen = sampling(round, generator(seed, "cohort", round), count)
        places: list[Any] = list(chosen.tolist() if hasattr(chosen, "tolist") else chosen)
    except Exception as error:  # a program's function may raise anything
        raise UserError(f"sampling fails in round {round + 1}: {type(error).__name__}: {said(error)}.") from error
    whole = all(type(place) is not bool and isinstance(place, Integral) for place in places)
    if not places or not whole or len(set(places)) < len(places) or not 0 <= min(places) <= max(places) < count:
        raise UserError(
            f"sampling gives {cut(places)} in round {round + 1}: it must give one or more different whole numbers "
            f"from 0 to {count - 1}."
        )
    return [among[place] for place in sorted(map(int, places))]


def absent(seed: int, round: int, names: list[str], cohort: list[int], share: float) -> frozenset[int]:
    """Which of the cohort do not answer: each with probability `share`, by name."""
    if not share:
        return frozenset()
    return frozenset(c for c in cohort if generator(seed, "absent", round, names[c]).random() < share)
