"""How often each parameter is synchronized, and what follows: which groups open, which close, what a client keeps.

A group's round is the interval between two of its synchronizations. In round t a group of period p closes where
(t + 1) mod p = 0. It opens for a client where a synchronization came since that client was last seen: t // p != seen
// p. Personal parameters (period NEVER) open at every participation, from the client's own model, and never close.

Where the first synchronization comes after the first local step, round 0 is that step alone and a lead: all groups that
are ever synchronized close in it, and their intervals begin in round 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from apiece.system.device import scalar
from apiece.system.typed import distinct, map_trees, numbers

NEVER = math.inf
Mask = Tensor | bool  # which parameters: bool [D], or True for all


def select(mask: Mask, new: Any, old: Any) -> Any:
    """`new` where the mask is true: a mask of `True` takes all; else leaves that are vectors like the mask are
    merged.
    """
    if mask is True:
        return new
    assert isinstance(mask, Tensor), "a mask that is no tensor takes all"
    if mask.dim() == 0:  # one client's step taken or not, whatever the leaf
        return map_trees(lambda a, b: torch.where(mask, a, b), new, old)
    return map_trees(lambda a, b: torch.where(mask, a, b) if a.shape == mask.shape else a, new, old)


def where(mask: Mask, new: Tensor, old: Tensor | float) -> Tensor:
    """`new` where the mask is true, else `old`."""
    return torch.where(mask, new, old) if isinstance(mask, Tensor) else new


class Part(NamedTuple):
    """Some of the parameters of a vector [D]: those at these places [n], None for all."""

    whole: torch.Size
    places: Tensor | None

    def of(self, leaf: Tensor) -> Tensor:
        """These of a vector [n]; a leaf of another shape stays what it is."""
        return leaf if self.places is None or leaf.shape != self.whole else leaf[self.places]

    def into(self, base: Tensor, part: Tensor) -> Tensor:
        """The inverse of `of`: all others [D] are the base's."""
        return part if self.places is None or base.shape != self.whole else base.index_copy(0, self.places, part)


@dataclass(frozen=True)
class Schedule:
    """The periods of one vector [D], and what they imply. `every` [D] holds periods in rounds, NEVER for personal
    ones; `lead` rounds, none or one, are an interval by themselves, before those of so many rounds begin.
    """

    every: Tensor
    lead: int = 0

    def __post_init__(self) -> None:
        periods, group = distinct(self.every)
        set_ = object.__setattr__
        set_(self, "periods", periods)  # [G]
        set_(self, "spans", torch.where(periods == NEVER, 1.0, periods))  # what is personal opens in every round
        set_(self, "lengths", tuple(numbers(periods)))  # the same as numbers
        set_(self, "group", group)  # [D], which period a parameter has
        set_(self, "never", self.every == NEVER)
        set_(self, "shared", self.every != NEVER)
        set_(self, "slow", torch.nonzero(self.shared & (self.every > 1)).flatten())
        set_(self, "own", torch.nonzero(self.every != 1).flatten())
        set_(self, "plain", bool((self.every == 1).all()))  # everything, every round
        finite = periods[periods != NEVER]
        set_(self, "longest", int(finite.max()) if len(finite) else 1)
        set_(self, "personal", bool(self.never.any()))

    periods: Tensor = None  # type: ignore[assignment]
    spans: Tensor = None  # type: ignore[assignment]
    lengths: tuple[float, ...] = ()
    group: Tensor = None  # type: ignore[assignment]
    never: Tensor = None  # type: ignore[assignment]
    shared: Tensor = None  # type: ignore[assignment]
    slow: Tensor = None  # type: ignore[assignment]
    own: Tensor = None  # type: ignore[assignment]
    plain: bool = True
    longest: int = 1
    personal: bool = False
    found: dict[tuple[float, ...], Part] = field(default_factory=dict[tuple[float, ...], Part])

    def opens(self, round: int | Tensor, seen: int | Tensor) -> Mask:
        """Which parameters begin a new interval for a client last seen in round `seen` (-1: never). True or bool
        [D].
        """
        if self.plain:
            return True
        spans = self.spans
        now, then = (torch.floor(scalar(t - self.lead, spans) / spans) for t in (round, seen))
        return ((now != then) | (seen < 0))[self.group]

    def interval(self, round: int, period: float) -> float:
        """The number of the interval that this round is in, for a group of this period: 0, 1, ..., -1 for the lead."""
        return (round - self.lead) // period

    def pattern(self, round: int, seen: int) -> tuple[bool, ...]:
        """Which periods open for a client last seen in that round: clients with the same pattern are sent the same."""
        new = seen < 0
        return tuple(new or p == NEVER or self.interval(round, p) != self.interval(seen, p) for p in self.lengths)

    def sent(self, round: int, seen: int) -> Part:
        """What the server sends to that client: the parameters that open, personal ones excepted."""
        opens = zip(self.lengths, self.pattern(round, seen), strict=True)
        return self._part(tuple(p for p, new in opens if new and p != NEVER))

    def returned(self, round: int) -> Part:
        """What is synchronized at the end of this round."""
        return self._part(tuple(p for p in self.lengths if p != NEVER and (round + 1 - self.lead) % p == 0))

    def _part(self, periods: tuple[float, ...]) -> Part:
        """The parameters of these periods, looked for once: to find them a device has to be waited for."""
        if periods not in self.found:
            due = torch.zeros_like(self.every, dtype=torch.bool)
            for period in periods:
                due |= self.every == period
            places = None if bool(due.all()) else torch.nonzero(due).flatten()
            self.found[periods] = Part(self.every.shape, places)
        return self.found[periods]

    def closes(self, round: int | Tensor) -> Mask:
        """Which parameters are synchronized at the end of this round. True or bool [D]."""
        if self.plain:
            return True
        due = ((scalar(round, self.periods) + 1 - self.lead) % self.periods == 0) & (self.periods != NEVER)
        return due[self.group]
