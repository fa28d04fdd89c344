"""A federation whose data the server does not have: what the clients told of it, and the way to reach them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from apiece.data.samples import Samples
from apiece.wired.transport import Transport

FEW = 3  # made-up samples, by which a model and a loss are checked


@dataclass(frozen=True, eq=False)
class Remote:
    """Clients on machines of their own. `samples` gives made-up ones of the right form: a check reads no others.

    Args:
        names: the clients' names, in the order of their numbers.
        sizes: how many training samples each has.
        tests: how many test samples each has.
        like: (x [3, ...], y [3, ...]), made up: their shapes and types are those of all clients' samples.
        labels: the names of classes 0, 1, ...; none where targets are no classes.
        columns: what became the sample, in order; none where data have no columns.
        connect: makes the way to the clients, in the run of this digest and text.
    """

    names: Sequence[str]
    sizes: tuple[int, ...]
    tests: tuple[int, ...]
    like: tuple[Tensor, Tensor]
    labels: tuple[Any, ...]
    columns: tuple[str, ...]
    connect: Callable[[str, str], Transport]

    unseen = ()

    def __repr__(self) -> str:
        samples, tests = sum(self.sizes), sum(self.tests)
        return f"Remote(clients={len(self.names)}, train={samples}, test={tests})"

    @property
    def participants(self) -> Sequence[int]:
        return range(len(self.names))

    @property
    def test_pool(self) -> tuple[Tensor, Tensor]:
        return self.like

    def on(self, device: torch.device | str) -> Remote:
        """The same clients: their data are on their own devices."""
        return self

    def size(self, client: int) -> int:
        """How many training samples the client has."""
        return self.sizes[client]

    def test_size(self, client: int) -> int:
        """How many test samples the client has."""
        return self.tests[client]

    def samples(self, client: int) -> Samples:
        size = self.sizes[client]
        return Samples(self.like, torch.arange(size).clamp(max=FEW - 1), size)

    def expect(self, clients: Iterable[int]) -> None:
        """Announces clients whose data are asked for soon; the server asks for none."""

    def test_rows(self, client: int) -> Tensor:
        """No rows: the client itself measures on its test samples."""
        return torch.zeros(0, dtype=torch.int64)

    def label_counts(self, client: int) -> list[int]:
        """An empty list: only the client knows how many of its samples each class has."""
        return []
