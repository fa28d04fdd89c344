"""An algorithm is a sum of parts: pieces, periods, step sizes; one optimizer, order, broadcast, cohort rule at most."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from inspect import signature
from typing import Any, cast

from apiece.algebra.broadcast import Broadcast, Identity
from apiece.algebra.finite import refuse_endless
from apiece.algebra.optim import Optimizer
from apiece.algebra.parts import Alternate, Client, Cohort, InTurn, Period, Phase, Server, StepSize
from apiece.algebra.piece import Piece
from apiece.algebra.slots import misspelled
from apiece.errors import UserError


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
        name = f"{self.name} + {other.name}"
        there = {type(piece) for piece in self.pieces}
        if twice := next((type(piece).__name__ for piece in other.pieces if type(piece) in there), None):
            raise UserError(
                f"{self.name!r} and {other.name!r} bring the same piece twice, {twice}: keep one of the two."
            )
        return combine([*self.parts, *other.parts], name)

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

    Raises UserError, naming both, for two parts that exclude each other, and for a method of a piece whose name is
    nearly a slot's: nothing would call it.

    >>> from apiece import NEVER, Period
    >>> algorithm(Period("head", NEVER), name="own heads").periods
    (Period(which='head', every=inf),)
    """
    for part in parts:
        if isinstance(part, Piece) and (wrong := misspelled(part)):
            raise UserError(wrong)
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
                raise UserError(
                    f"{part!r} is no part of an algorithm: give instances of Period, Server, ..., or of a class that "
                    "begins with `class Mine(Piece):`."
                )
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
