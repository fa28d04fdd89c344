"""Schedules: factors of the step size by round, and their names for `--schedule "exponential(0.998)"`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from apiece.errors import UserError


def _refuse_outside(name: str, value: float, lowest: str, inside: bool) -> None:
    if not inside:
        raise UserError(f"{name}={value:g} makes no schedule: give a number from {lowest} to 1.")


@dataclass(frozen=True)
class Constant:
    """1 in every round."""

    def __call__(self, round: int, rounds: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Exponential:
    """decay^t in round t = 0, 1, ..."""

    decay: float = 0.998

    def __post_init__(self) -> None:
        _refuse_outside("decay", self.decay, "above 0", 0 < self.decay <= 1)

    def __call__(self, round: int, rounds: int) -> float:
        return self.decay**round


@dataclass(frozen=True)
class Cosine:
    """floor + (1 - floor) (1 + cos(pi t / rounds)) / 2 in round t: from 1 in the first round towards `floor`."""

    floor: float = 0.0

    def __post_init__(self) -> None:
        _refuse_outside("floor", self.floor, "0", 0 <= self.floor <= 1)

    def __call__(self, round: int, rounds: int) -> float:
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * round / max(rounds, 1)))


@dataclass(frozen=True)
class WarmRestarts:
    """floor + (1 - floor) (1 + cos(pi s / p)) / 2 in the s-th round of a period of p = period, period * growth, ...
    rounds, each of which begins at 1 again (Loshchilov and Hutter, SGDR, ICLR 2017, equation 5).

    It does not depend on the number of rounds.
    """

    period: int = 10
    growth: int = 1
    floor: float = 0.0

    def __post_init__(self) -> None:
        if self.period < 1 or self.growth < 1:
            raise UserError(
                f"a period of {self.period} rounds that grows {self.growth} times: give 1 or more for both."
            )
        _refuse_outside("floor", self.floor, "0", 0 <= self.floor <= 1)

    def __call__(self, round: int, rounds: int) -> float:
        since, period = round, self.period
        while since >= period:
            if self.growth == 1:
                since %= period
                break
            since, period = since - period, period * self.growth
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * since / period))


@dataclass(frozen=True)
class Steps:
    """factor^floor(t / every) in round t = 0, 1, ..."""

    every: int = 50
    factor: float = 0.1

    def __post_init__(self) -> None:
        if self.every < 1:
            raise UserError(f"a schedule cannot drop every {self.every} rounds: give 1 or more.")
        _refuse_outside("factor", self.factor, "above 0", 0 < self.factor <= 1)

    def __call__(self, round: int, rounds: int) -> float:
        return self.factor ** (round // self.every)


NAMED = {
    "constant": Constant,
    "exponential": Exponential,
    "cosine": Cosine,
    "warm_restarts": WarmRestarts,
    "drop": Steps,
}
