"""Trees of tensors by name, as they are stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_structure, tree_unflatten


def numbered(names: Iterable[str]) -> Iterator[str]:
    """The earlier names of leaves on the disk, before pieces named them: `memory.0`, `memory.1`, ..."""
    counts: dict[str, count[int]] = {}
    for name in names:
        kind, named, _ = name.partition(".")
        yield f"{kind}.{next(counts.setdefault(kind, count()))}" if named else name


def flatten(prefix: str, tree: Any) -> dict[str, Tensor]:
    """The leaves of a tree by fields and keys, in a plain tuple by number: `memory.Scaffold.variate`."""
    if not isinstance(tree, (tuple, list, dict)):
        return {prefix: tree}
    parts = tree.items() if isinstance(tree, dict) else zip(getattr(tree, "_fields", range(len(tree))), tree)
    return {name: leaf for key, part in parts for name, leaf in flatten(f"{prefix}.{key}", part).items()}


def restore(template: Any, named: Mapping[str, Tensor], prefix: str) -> Any:
    """The tree of the template's structure from its leaves by name, also by number: the inverse of `flatten`."""
    names = list(flatten(prefix, template))
    if not named.keys() >= set(names):
        names = list(numbered(names))
    return tree_unflatten([named[name] for name in names], tree_structure(template))
