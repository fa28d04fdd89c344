"""How often each parameter is synchronized, and what follows: which groups open, which close, what a client keeps.

A group's round is the interval between two of its synchronizations. In round t = 0, 1, ... a group of period p and
offset o closes where (t + 1 - o) mod p = 0: counted from 1, in rounds o, o + p, ..., and in p, 2 p, ... without an
offset. It opens for a client where a synchronization came since that client was last seen: (t - o) // p != (seen - o)
// p. Rounds before the first synchronization are an interval, too, of o rounds. Personal parameters (period NEVER) open
at every participation, from the client's own model, and never close.

Where the first synchronization comes after the first local step, round 0 is that step alone and a lead: all groups
without an offset close in it, and t counts from round 1.
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


class Cycle(NamedTuple):
    """When one group is synchronized: every so many rounds, counted from round `begins`."""

    every: float
    begins: float = 0.0

    def interval(self, round: int) -> float:
        """The number of the interval that this round is in: 0, 1, ..., -1 before round `begins`."""
        return (round - self.begins) // self.every

    def closes(self, round: int) -> bool:
        """Whether this round is an interval's last one."""
        return self.every != NEVER and (round + 1 - self.begins) % self.every == 0


@dataclass(frozen=True)
class Schedule:
    """The periods of one vector [D], and what they imply. `every` [D] holds periods in rounds, NEVER for personal
    ones, `offset` [D] how many rounds later than others of that period a parameter is synchronized, None for 0; `lead`
    rounds, none or one, are an interval by themselves, before those of so many rounds begin.
    """

    every: Tensor
    lead: int = 0
    offset: Tensor | None = None

    def __post_init__(self) -> None:
        periods, period = distinct(self.every)
        offsets, offset = distinct(torch.zeros_like(self.every) if self.offset is None else self.offset)
        both = max(len(offsets), 1)
        keys, group = distinct(period * both + offset)
        periods, begins = periods[keys // both], offsets[keys % both] + self.lead
        set_ = object.__setattr__
        set_(self, "periods", periods)  # [G]
        set_(self, "begins", begins)  # [G]
        set_(self, "spans", torch.where(periods == NEVER, 1.0, periods))  # what is personal opens in every round
        cycles = tuple(Cycle(*pair) for pair in zip(numbers(periods), numbers(begins), strict=True))
        set_(self, "cycles", cycles)  # the same as numbers
        set_(self, "group", group)  # [D], which period and offset a parameter has
        set_(self, "never", self.every == NEVER)
        set_(self, "shared", self.every != NEVER)
        set_(self, "slow", torch.nonzero(self.shared & (self.every > 1)).flatten())
        set_(self, "own", torch.nonzero(self.every != 1).flatten())
        set_(self, "plain", bool((self.every == 1).all()))  # everything, every round
        longest = max((cycle.every for cycle in cycles if cycle.every != NEVER), default=1.0)
        set_(self, "longest", int(longest))
        slowest = min((cycle.begins for cycle in cycles if cycle.every == longest), default=float(self.lead))
        set_(self, "slowest", Cycle(longest, slowest))
        set_(self, "personal", bool(self.never.any()))

    periods: Tensor = None  # type: ignore[assignment]
    begins: Tensor = None  # type: ignore[assignment]
    spans: Tensor = None  # type: ignore[assignment]
    cycles: tuple[Cycle, ...] = ()
    group: Tensor = None  # type: ignore[assignment]
    never: Tensor = None  # type: ignore[assignment]
    shared: Tensor = None  # type: ignore[assignment]
    slow: Tensor = None  # type: ignore[assignment]
    own: Tensor = None  # type: ignore[assignment]
    plain: bool = True
    longest: int = 1
    slowest: Cycle = Cycle(1.0)  # of the groups of the longest period, the one that is synchronized first
    personal: bool = False
    found: dict[tuple[int, ...], Part] = field(default_factory=dict[tuple[int, ...], Part])

    def opens(self, round: int | Tensor, seen: int | Tensor) -> Mask:
        """Which parameters begin a new interval for a client last seen in round `seen` (-1: never). True or bool
        [D].
        """
        if self.plain:
            return True
        now, then = (torch.floor((scalar(t, self.spans) - self.begins) / self.spans) for t in (round, seen))
        return ((now != then) | (seen < 0))[self.group]

    def pattern(self, round: int, seen: int) -> tuple[bool, ...]:
        """Which groups open for a client last seen in that round: clients with the same pattern are sent the same."""
        new = seen < 0
        return tuple(new or c.every == NEVER or c.interval(round) != c.interval(seen) for c in self.cycles)

    def sent(self, round: int, seen: int) -> Part:
        """What the server sends to that client: the parameters that open, personal ones excepted."""
        opens = zip(self.cycles, self.pattern(round, seen), strict=True)
        return self._part(tuple(g for g, (cycle, new) in enumerate(opens) if new and cycle.every != NEVER))

    def returned(self, round: int) -> Part:
        """What is synchronized at the end of this round."""
        return self._part(tuple(g for g, cycle in enumerate(self.cycles) if cycle.closes(round)))

    def _part(self, groups: tuple[int, ...]) -> Part:
        """The parameters of these groups, looked for once: to find them a device has to be waited for."""
        if groups not in self.found:
            due = torch.zeros_like(self.every, dtype=torch.bool)
            for group in groups:
                due |= self.group == group
            places = None if bool(due.all()) else torch.nonzero(due).flatten()
            self.found[groups] = Part(self.every.shape, places)
        return self.found[groups]

    def closes(self, round: int | Tensor) -> Mask:
        """Which parameters are synchronized at the end of this round. True or bool [D]."""
        if self.plain:
            return True
        due = ((scalar(round, self.periods) + 1 - self.begins) % self.periods == 0) & (self.periods != NEVER)
        return due[self.group]
