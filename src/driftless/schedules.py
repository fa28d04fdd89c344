"""The named schedules of the step size over rounds: `--schedule "exponential(0.998)"`.

Light: nothing heavy is imported until one is made.
"""

from __future__ import annotations

from typing import Any


def constant() -> Any:
    """The same step size in every round."""
    from driftless.optim import Constant

    return Constant()


def exponential(decay: float = 0.998) -> Any:
    """Times `decay` after every round."""
    from driftless.optim import Exponential

    return Exponential(decay)


def cosine(floor: float = 0.0) -> Any:
    """Half a cosine down to `floor` times the step size."""
    from driftless.optim import Cosine

    return Cosine(floor)


def drop(every: int = 50, factor: float = 0.1) -> Any:
    """Times `factor` after every so many rounds."""
    from driftless.optim import Steps

    return Steps(every, factor)
