"""Numbers that no vector holds, among the arguments of optimizers, schedules and pieces: refused by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, cast

from apiece.errors import UserError

LARGEST = 3.4e38  # that a float32 holds


def refuse_endless(value: Any, allowed: Any = None) -> None:
    """Raise UserError where a number inside of a dataclass is NaN, infinite or too large for float32; what is equal to
    `allowed` may be.
    """
    found = ", ".join(f"{name}={number}" for name, number in _endless(value))
    if found and value != allowed:
        raise UserError(f"{value!r}: {found} must be a finite number of at most {LARGEST:g}.")


def _endless(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, float) and not abs(value) <= LARGEST:
        yield name, value
    elif isinstance(value, tuple | list):
        for item in cast("Iterable[Any]", value):
            yield from _endless(item, name)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _endless(getattr(value, field.name), field.name)
