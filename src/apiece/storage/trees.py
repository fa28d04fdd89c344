"""Trees of tensors by name: what they are stored as."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_structure, tree_unflatten


def numbered(names: Iterable[str]) -> Iterator[str]:
    """The names that leaves had on the disk before pieces gave them theirs: `memory.0`, `memory.1`, ..."""
    counts: dict[str, count[int]] = {}
    for name in names:
        kind, named, _ = name.partition(".")
        yield f"{kind}.{next(counts.setdefault(kind, count()))}" if named else name


def flatten(prefix: str, tree: Any) -> dict[str, Tensor]:
    """The leaves of a tree by their fields and keys, in a tuple without names by number: `memory.Scaffold.variate`."""
    if not isinstance(tree, (tuple, list, dict)):
        return {prefix: tree}
    parts = tree.items() if isinstance(tree, dict) else zip(getattr(tree, "_fields", range(len(tree))), tree)
    return {name: leaf for key, part in parts for name, leaf in flatten(f"{prefix}.{key}", part).items()}


def restore(template: Any, named: Mapping[str, Tensor], prefix: str) -> Any:
    """The tree of that template from leaves by name: the inverse of `flatten`, for what was kept by number too."""
    names = list(flatten(prefix, template))
    if not named.keys() >= set(names):
        names = list(numbered(names))
    return tree_unflatten([named[name] for name in names], tree_structure(template))
