"""Functions of PyTorch that lack types, with types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map


def map_tree(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with function(x) for every leaf x."""
    return tree_map(function, tree)


def map_trees(function: Callable[[Tensor, Tensor], Any], one: Any, two: Any) -> Any:
    """The tree of function(x, y) for the leaves x, y in the same place of two trees of one structure."""
    return tree_map(function, one, two)


def distinct(x: Tensor) -> tuple[Tensor, Tensor]:
    """(the distinct values of x in ascending order, the position of each entry of x among them). Of equal entries,
    which are most of a schedule's, the positions take no memory.
    """
    if len(x) and bool((x == x[0]).all()):
        return x[:1], torch.zeros(1, dtype=torch.int64, device=x.device).expand(len(x))
    values, places = torch.unique(x, return_inverse=True)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return values, places  # pyright: ignore[reportUnknownVariableType]


@contextmanager
def torch_seeded(seed: int) -> Iterator[None]:
    """In this context torch's CPU generator starts from this seed; afterwards it has its earlier state."""
    with torch.random.fork_rng(devices=()):  # pyright: ignore[reportUnknownMemberType]
        torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
        yield


def norm(x: Tensor) -> Tensor:
    """The Euclidean norm of x."""
    return x.norm()  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


def numbers(x: Tensor) -> list[Any]:
    """The tensor as a list of Python numbers."""
    return x.tolist()  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


def from_array(array: np.ndarray) -> Tensor:
    """A tensor that shares the array's memory."""
    return torch.from_numpy(array)  # pyright: ignore[reportUnknownMemberType]


def divided(x: Tensor, size: int | list[int]) -> tuple[Tensor, ...]:
    """Parts of this size, the last one possibly smaller, or of these sizes."""
    return x.split(size)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType, reportReturnType]
