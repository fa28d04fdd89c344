"""The rungs of a search by successive halving (Jamieson and Talwalkar 2016), and what a run has spent.

All trials run to the first rung; of n trials that reached a rung, the best ceil(n / reduction) go on to the next, at a
budget that is `reduction` times larger. Rungs and numbers of trials follow from the budget alone, so every algorithm
gets the same: it is pruned against its own trials, never against another algorithm's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from apiece.errors import UserError
from apiece.experiment.stopping import EarlyStopping
from apiece.report.text import short

PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


class Rung(NamedTuple):
    """How far a run goes, in rounds or bytes, and how many trials run so far."""

    at: float
    trials: int


class Budget(NamedTuple):
    """The most that one run spends: rounds, or bytes sent both ways."""

    most: float
    bytes: bool = False

    @classmethod
    def of(cls, text: str, rounds: int) -> Budget:
        """A budget such as 20MB, or these rounds if there is none; UserError for any other text."""
        if not text:
            return cls(rounds)
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kMG]?)B\s*", text)
        if found is None or not float(found[1]):
            raise UserError(f"--budget {text!r} is no number of bytes: write 500kB or 20MB; rounds are --rounds.")
        return cls(float(found[1]) * PREFIXES[found[2]], True)

    def spent(self, info: Mapping[str, Any]) -> float:
        """What a run has spent after a round."""
        return info["bytes_up"] + info["bytes_down"] if self.bytes else info["round"]

    def told(self, at: float) -> str:
        return short(at, "B") if self.bytes else f"{at:g} round{'s' if at != 1 else ''}"

    def rungs(self, trials: int, reduction: int) -> list[Rung]:
        """The rungs, the last of which is the whole budget.

        >>> [tuple(rung) for rung in Budget(50).rungs(20, 3)]
        [(6, 20), (17, 7), (50, 3)]
        """
        counts = [trials]
        while reduction > 1 and min(trials, self.most) / reduction ** len(counts) >= 1:
            counts.append(math.ceil(counts[-1] / reduction))
        shares = [self.most / reduction**place for place in reversed(range(len(counts)))]
        return [Rung(share if self.bytes else math.ceil(share), n) for share, n in zip(shares, counts, strict=True)]


@dataclass(frozen=True)
class Until(EarlyStopping):
    """Ends a run at a rung; also one that was killed there, before it was noted that the run ended."""

    metric: str | None = None
    patience: int = 1
    budget: Budget = Budget(1)
    at: float = 1.0

    def __call__(self, seen: Any) -> None:
        return None

    def due(self, records: Sequence[Mapping[str, Any]], *_: Any) -> bool:
        return bool(records) and self.budget.spent(records[-1]) >= self.at
