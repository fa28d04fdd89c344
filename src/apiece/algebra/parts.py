"""What an algorithm is a sum of beside its pieces: periods, step sizes, an order, optimizers, the rule of a cohort."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from apiece.algebra.optim import Optimizer
from apiece.algebra.periods import NEVER
from apiece.errors import UserError, refuse_other
from apiece.vector.groups import Selector


@dataclass(frozen=True)
class Period:
    """The selected parameters are synchronized every so many rounds; NEVER makes them personal.

    theta <- mean_i(theta_i) at the end of round t = 0, 1, ... where (t + 1 - offset) mod every = 0; in between theta_i
    goes on. An offset, from 0 to `every`, lets groups take turns: counted from 1, they are synchronized in rounds
    offset, offset + every, ...; offsets 0 and `every` are the same. Of a parameter that several periods select, the
    longest holds, and of equally long ones the one with the largest offset.
    Stored: theta_i, and between synchronizations what was sent of it. Sent: nothing else, and of these only where an
    interval opens or closes. An unseen client gets the server's; of personal ones the clients' mean where it is
    measured, and the initial ones where `apiece personalize` serves it.

    Args:
        which: the parameters: "head", "body", "norm", "*", a pattern of names, or a number of leading layers.
        every: the number of rounds, or NEVER.
        offset: how many rounds later, so that groups take turns.

    >>> from apiece import algorithm, federate
    >>> personal_head = algorithm(Period("head", NEVER), name="personal head")
    >>> len(federate("mlp", "digits", personal_head, clients=5, rounds=2, steps=5).metrics)
    2
    """

    which: Selector
    every: float
    offset: int = 0

    def __post_init__(self) -> None:
        if not self.every >= 1 or (self.every != NEVER and self.every != int(self.every)):
            raise UserError(f"a period of {self.every:g} rounds is none: give 1, 2, ..., or inf for never.")
        if self.offset and self.every == NEVER:
            raise UserError(f"what is never synchronized has no offset: leave out {self.offset:g}.")
        if not 0 <= self.offset <= self.every or self.offset != int(self.offset):
            raise UserError(
                f"an offset of {self.offset:g} rounds is none for a period of {self.every:g}: give a whole number from "
                f"0 to {self.every:g}."
            )

    def __repr__(self) -> str:
        later = f", offset={self.offset!r}" if self.offset else ""
        return f"{type(self).__name__}(which={self.which!r}, every={self.every!r}{later})"

    @property
    def late(self) -> float:
        """The offset within a period: 0 where it is a whole one."""
        return float(self.offset % self.every)

    def neutral(self) -> tuple[Period, str]:
        """As `Piece.neutral`: which value of this part changes nothing, or why there is none."""
        return replace(self, every=1, offset=0), "fedavg"


@dataclass(frozen=True)
class StepSize:
    """The local step size of the selected parameters, as a factor of the run's: theta <- theta - factor lr g.

    Stored and sent: nothing. An unseen client is served as without it.

    Args:
        which: the parameters, as in `Period`.
        factor: of the run's step size; 0 leaves them where they are.

    >>> from apiece import algorithm
    >>> algorithm(StepSize("head", 0.1), name="careful head").step_sizes
    (StepSize(which='head', factor=0.1),)
    """

    which: Selector
    factor: float

    def __post_init__(self) -> None:
        if self.factor < 0:
            raise UserError(f"a step size of {self.factor:g} times the run's would climb: give a factor of 0 or more.")

    def neutral(self) -> tuple[StepSize, str]:
        return replace(self, factor=1.0), "fedavg"


@dataclass(frozen=True)
class Alternate:
    """Local training moves the selected parameters alone for `steps` steps (below 1: that share), then the others.

    y <- y - lr grad_y f(x, y) while x rests, then x <- x - lr grad_x f(x, y) while y rests, y being the selected.
    Stored and sent: nothing. An unseen client is served as without it.

    Args:
        which: the parameters that move first: "head", "body", a pattern of names such as "layers.0.*", ...
        steps: for how many local steps; a number below 1 is a share of them.

    >>> from apiece import algorithm
    >>> algorithm(Alternate("head", 5), name="head first").alternate
    Alternate(which='head', steps=5)
    """

    which: Selector
    steps: float

    def __post_init__(self) -> None:
        if not self.steps >= 0 or (self.steps > 1 and not float(self.steps).is_integer()):
            raise UserError(f"{self.steps:g} is no number of local steps: give a whole number, or a share below 1.")

    def neutral(self) -> str:
        return "one of the two groups rests in every step, and under FedAvg none does"


@dataclass(frozen=True)
class InTurn:
    """Local training moves the selected parameters only in rounds that synchronize them; in others they rest.

    theta_j <- theta_j - lr g_j in the local steps of round t where (t + 1 - offset_j) mod every_j = 0, by the periods
    of the sum; else theta_j stays, with the optimizer's state of it. What is personal moves in every round.
    Stored and sent: nothing. An unseen client is served as without it.
    """

    which: Selector

    def neutral(self) -> str:
        return "which parameters rest is said by their periods: where these are 1 none does, and it is bitwise fedavg"


@dataclass(frozen=True)
class Client:
    """The clients' optimizer, instead of the run's: theta <- optimizer(theta, g) in every local step.

    >>> from apiece import Sgd, algorithm
    >>> algorithm(Client(Sgd(momentum=0.9)), name="with momentum").client
    Sgd(momentum=0.9, weight_decay=0.0)
    """

    optimizer: Optimizer


@dataclass(frozen=True)
class Server:
    """The server's optimizer, instead of the run's.

    Args:
        optimizer: such as `Descent(lr=0.5)`; it steps against the mean of sent - kept.

    >>> from apiece import Descent, algorithm
    >>> algorithm(Server(Descent(lr=0.5)), name="half the way").server
    Descent(lr=0.5)
    """

    optimizer: Optimizer

    def neutral(self) -> tuple[Server, str] | str:
        neutral: Callable[[], tuple[Any, str] | str] | None = getattr(self.optimizer, "neutral", None)
        if neutral is None:
            raise NotImplementedError(f"{self.optimizer!r} must declare its neutral value, or why there is none")
        declared = neutral()
        return declared if isinstance(declared, str) else (Server(declared[0]), declared[1])


@dataclass(frozen=True)
class Cohort:
    """`held`: one cohort serves a whole interval of the longest period; `redrawn`: each round has its own.

    >>> from apiece import algorithm
    >>> algorithm(Period("body", 5), Cohort("held"), name="slow body").cohort
    'held'
    """

    rule: str

    def __post_init__(self) -> None:
        refuse_other("Cohort", self.rule, "held", "redrawn")


@dataclass(frozen=True)
class Phase:
    """`last_step`: groups are synchronized after the last local step of their interval; `first_step`: after the first
    of all, in a round of its own, and then after so many rounds.

    Args:
        rule: "last_step" or "first_step".

    >>> from apiece import algorithm
    >>> algorithm(Period("body", 5), Phase("first_step"), name="average first").phase
    'first_step'
    """

    rule: str

    def __post_init__(self) -> None:
        refuse_other("Phase", self.rule, "last_step", "first_step")
