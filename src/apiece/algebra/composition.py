"""An algorithm is a sum of parts: pieces, periods, step sizes; one optimizer, order, broadcast, cohort rule at most."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from inspect import signature
from typing import Any, cast

from apiece.algebra.broadcast import Broadcast, Identity
from apiece.algebra.finite import refuse_endless
from apiece.algebra.optim import Optimizer
from apiece.algebra.periods import NEVER
from apiece.algebra.piece import Piece
from apiece.errors import UserError
from apiece.vector.space import Selector


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

    >>> from apiece import federate
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

    >>> from apiece import Descent
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

    >>> from apiece import Period, algorithm
    >>> algorithm(Period("body", 5), Cohort("held"), name="slow body").cohort
    'held'
    """

    rule: str


@dataclass(frozen=True)
class Phase:
    """`last_step`: groups are synchronized after the last local step of their interval; `first_step`: after the first
    of all, in a round of its own, and then after so many rounds.

    Args:
        rule: "last_step" or "first_step".

    >>> algorithm(Period("body", 5), Phase("first_step"), name="average first").phase
    'first_step'
    """

    rule: str


@dataclass(frozen=True)
class Algorithm:
    """A sum of parts, in order; its repr is its configuration. Made by `algorithm`, `combine` or `+`.

    Args:
        name: what tables and run folders call it.
        pieces, periods, step_sizes, in_turn: parts of which there may be several.
        alternate, client, server, broadcast: parts of which there is at most one; None is the run's own.
        cohort, phase: the rules of `Cohort` and `Phase`.

    >>> from apiece import Period, algorithm
    >>> slow = algorithm(Period("body", 5), name="slow body")
    >>> (slow + algorithm(Period("head", 2), name="head")).name
    'slow body + head'
    """

    name: str = "fedavg"
    pieces: tuple[Piece, ...] = ()
    periods: tuple[Period, ...] = ()
    step_sizes: tuple[StepSize, ...] = ()
    alternate: Alternate | None = None
    client: Optimizer | None = None
    server: Optimizer | None = None
    broadcast: Broadcast = Identity()
    cohort: str = "redrawn"
    phase: str = "last_step"
    in_turn: tuple[InTurn, ...] = ()

    def __repr__(self) -> str:
        said = (field.name for field in fields(self) if field.name != "in_turn" or self.in_turn)
        return f"Algorithm({', '.join(f'{name}={getattr(self, name)!r}' for name in said)})"

    def __add__(self, other: Algorithm) -> Algorithm:
        return combine([*self.parts, *other.parts], f"{self.name} + {other.name}")

    @property
    def parts(self) -> list[Any]:
        """What `combine` makes this algorithm of."""
        single: list[Any] = [] if self.client is None else [Client(self.client)]
        single += [] if self.server is None else [Server(self.server)]
        single += [self.alternate] * (self.alternate is not None)
        single += [Cohort(self.cohort)] * (self.cohort != Algorithm.cohort)
        single += [Phase(self.phase)] * (self.phase != Algorithm.phase)
        single += [self.broadcast] * (self.broadcast != Identity())
        return [*self.pieces, *self.periods, *self.step_sizes, *self.in_turn, *single]


def algorithm(*parts: Any, name: str) -> Algorithm:
    """The algorithm that is the sum of these parts.

    Args:
        parts: instances of pieces, `Period`, `StepSize`, `Alternate`, `Client`, `Server`, `Cohort`, `Phase`, or one
            broadcast.
        name: what tables and run folders call it.

    Raises UserError, naming both, for two parts that exclude each other.

    >>> from apiece import NEVER, Period
    >>> algorithm(Period("head", NEVER), name="own heads").periods
    (Period(which='head', every=inf),)
    """
    return combine(parts, name)


def changed(function: Callable[..., Algorithm], **arguments: Any) -> str:
    """Those of a named algorithm's arguments that are not at their defaults, as its name says them: `, name=value`."""
    usual = signature(function).parameters
    return "".join(f", {name}={value}" for name, value in arguments.items() if value != usual[name].default)


def combine(parts: Iterable[Any], name: str) -> Algorithm:
    """The sum of parts: `algorithm` for parts that stand in a list.

    Raises UserError, naming both, for two that exclude each other.

    >>> from apiece import Descent, Server
    >>> combine([Server(Descent(0.5)), Server(Descent(1.0))], "two servers")
    Traceback (most recent call last):
    apiece.errors.UserError: Descent(lr=0.5) and Descent(lr=1.0) both decide the server of 'two servers': keep ...
    """
    result = Algorithm(name=name)
    single: dict[str, Any] = {}

    def once(slot: str, value: Any) -> None:
        if slot in single and single[slot] != value:
            raise UserError(f"{single[slot]!r} and {value!r} both decide the {slot} of {name!r}: keep one of them.")
        single[slot] = value

    for part in parts:
        if not isinstance(part, Period):  # which may be NEVER
            refuse_endless(part, _neutral(part))
        match part:
            case Piece():
                _check(part, result.pieces, name)
                result = replace(result, pieces=(*result.pieces, part))
            case Period():
                result = replace(result, periods=(*result.periods, part))
            case StepSize():
                result = replace(result, step_sizes=(*result.step_sizes, part))
            case InTurn():
                result = replace(result, in_turn=(*result.in_turn, part))
            case Alternate():
                once("alternate", part)
            case Client():
                once("client", part.optimizer)
            case Server():
                once("server", part.optimizer)
            case Cohort():
                once("cohort", part.rule)
            case Phase():
                once("phase", part.rule)
            case _ if isinstance(part, type) or not hasattr(part, "common"):
                raise UserError(f"{part!r} is no part of an algorithm: give instances of pieces, Period, Server, ...")
            case _:
                once("broadcast", part)
    result = replace(result, **single, pieces=tuple(sorted(result.pieces, key=lambda piece: piece.runs_last)))
    return result if result.broadcast.common else _models_of_their_own(result)


def _neutral(part: Any) -> Any:
    """The value of a piece that changes nothing, if it has one: that alone may be an infinite number."""
    try:
        declared = part.neutral()
    except (AttributeError, NotImplementedError, TypeError):
        return None
    return cast("tuple[Any, str]", declared)[0] if isinstance(declared, tuple) else None


def _models_of_their_own(a: Algorithm) -> Algorithm:
    """The algorithm; raises UserError, naming both, where a part of it needs a model that the server has not."""
    for part in (*a.periods, *(p for p in a.pieces if p.fills("learn", "settle", "evaluate"))):
        raise UserError(
            f"{part!r} and {a.broadcast!r} cannot be composed in {a.name!r}: the one works on the server's "
            "model, and the other's server has none but writes one for each client."
        )
    return a


def _check(new: Piece, present: tuple[Piece, ...], name: str) -> None:
    for old in present:
        if type(old) is type(new):
            raise UserError(f"{old!r} and {new!r} are the same piece twice in {name!r}: keep one of them.")
        if type(old).__name__ == type(new).__name__:
            raise UserError(
                f"{old!r} of {type(old).__module__} and {new!r} of {type(new).__module__} have one name in {name!r}: "
                "what is drawn and remembered goes by it, so rename one of the two classes."
            )
        if reason := _clash(new, old) or _clash(old, new):
            raise UserError(f"{old!r} and {new!r} cannot be composed in {name!r}: {reason}.")


def _clash(one: Piece, other: Piece) -> str:
    """Why a piece cannot be composed with the other, as it `excludes` that or a slot that it fills; "" if it can."""
    filled = (
        name for name in one.excludes if name == type(other).__name__ or hasattr(Piece, name) and other.fills(name)
    )
    return next((one.excludes[name] for name in filled), "")
