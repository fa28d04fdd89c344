"""A client's training samples: rows of a pool of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils._pytree import tree_map

from apiece.system.numbered import by_number


class Samples(NamedTuple):
    """A client's training samples: rows `index` of a pool of tensors, the first `size` of them real."""

    pool: Any
    index: Tensor
    size: Any

    def __repr__(self) -> str:
        return f"Samples(size={self.size})"

    def batch(self, rows: Tensor) -> Any:
        """The batch of these rows: a tree with a leading sample axis."""
        where = self.index[rows]
        return tree_map(lambda leaf: leaf[where], self.pool)

    def places(self, batches: Any) -> Callable[[Any], Tensor]:
        """The number of a step -> the pool's rows of its batch, looked up before all steps, so that these are alike."""
        return by_number(self.index[batches] if isinstance(batches, Tensor) else [self.index[r] for r in batches])

    def all(self) -> Any:
        """Every sample (padded by repetition to the common length where clients are stacked)."""
        return tree_map(lambda leaf: leaf[self.index], self.pool)
