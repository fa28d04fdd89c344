"""Where clients are, as a round asks them: the answer of a cohort, whatever runs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from apiece.engine.state import Shared
from apiece.engine.traffic import Traffic


class Answer(NamedTuple):
    """What a cohort made of an operation."""

    answered: list[int]
    mean: Any  # the tree that was said, its marks kept but on the model's own leaves
    rows: dict[int, Any]
    diagnostics: Any  # the simulation's own sums
    skipped: list[int]  # clients left out because they were not finite
    traffic: Traffic
    logged: Mapping[str, float] = MappingProxyType({})  # numbers that pieces log of the round on the server, by name


class Cohort(Protocol):
    """The clients of one round, where operations are mapped: see `clients.Place`."""

    def map(self, operation: str, shared: Shared, each: dict[int, Tensor] | None = None) -> Answer: ...

    def only(self, clients: list[int]) -> Cohort: ...


class Home(Protocol):
    """The place where all clients are: see `clients.Clients`."""

    @property
    def registered(self) -> int: ...

    def at(self, cohort: Iterable[int], absent: frozenset[int], round: int) -> Cohort: ...
