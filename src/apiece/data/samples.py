"""A client's training samples: rows of a pool of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor


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
        return _map(lambda leaf: leaf[where], self.pool)

    def places(self, batches: Any) -> Sequence[Tensor]:
        """The pool's rows of each step's batch, looked up once and separately, so that all steps are the same."""
        return [self.index[rows] for rows in batches]

    def all(self) -> Any:
        """Every sample (padded by repetition to the common length where clients are stacked)."""
        return _map(lambda leaf: leaf[self.index], self.pool)


def _map(function: Callable[[Any], Any], tree: Any) -> Any:
    from torch.utils._pytree import tree_map

    return tree_map(function, tree)
