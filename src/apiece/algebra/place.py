"""What a round and the clients of its cohort say to each other: what goes to all, what comes back, and what crossed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from apiece.algebra.view import Batches
from apiece.data.samples import Samples


class Traffic(NamedTuple):
    """Numbers by kind, and bytes as they go over a wire, headers and names included."""

    parameters_up: int = 0
    buffers_up: int = 0
    control_up: int = 0
    bytes_up: int = 0
    parameters_down: int = 0
    buffers_down: int = 0
    control_down: int = 0
    bytes_down: int = 0

    def plus(self, other: Traffic) -> Traffic:
        return Traffic(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def numbers_up(self) -> int:
        return self.parameters_up + self.buffers_up + self.control_up

    @property
    def numbers_down(self) -> int:
        return self.parameters_down + self.buffers_down + self.control_down


class Shared(NamedTuple):
    """What goes to every client of a cohort."""

    round: int
    lr: float
    model: Tensor | tuple[()]  # [D], or () where each client is sent its own
    buffers: Tensor
    from_server: dict[str, Any]  # what each piece tells its clients of that

    @property
    def vector(self) -> Tensor:
        """The model [D] that all are sent alike."""
        assert isinstance(self.model, Tensor), "each client is sent a model of its own"
        return self.model


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

    @property
    def cohort(self) -> list[int]: ...

    def only(self, clients: list[int]) -> Cohort: ...


class Described(Protocol):
    """What a broadcast may read of a client to which it writes a model: see `state.ClientTask`."""

    @property
    def who(self) -> int: ...

    @property
    def samples(self) -> Samples: ...

    @property
    def batches(self) -> Batches: ...

    @property
    def described(self) -> Tensor | tuple[()]: ...


class Home(Protocol):
    """The place where all clients are: see `clients.Clients`."""

    @property
    def registered(self) -> int: ...

    def at(self, cohort: Iterable[int], absent: frozenset[int], round: int) -> Cohort: ...
