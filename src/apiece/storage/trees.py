"""Trees of tensors by name, as they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from itertools import count
from operator import getitem, itemgetter
from typing import Any

from torch import Tensor


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


def flattener(template: Any, names: Iterable[str]) -> Callable[[Any], dict[str, Tensor]]:
    """The leaves, by these names, of any tree of the template's structure, whose leaves are looked for here once."""
    paths = dict(zip(names, _paths(template), strict=True))

    def flattened(tree: Any) -> dict[str, Tensor]:
        return {name: reduce(getitem, path, tree) for name, path in paths.items()}

    return flattened


def _paths(tree: Any) -> list[tuple[Any, ...]]:
    """The keys and places that lead to each leaf."""
    if not isinstance(tree, (tuple, list, dict)):
        return [()]
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return [(key, *path) for key, part in parts for path in _paths(part)]


def restorer(template: Any, names: Iterable[str]) -> Callable[[Mapping[str, Tensor]], Any]:
    """A tree of the template's structure from its leaves by these names: the inverse of `flattener`. It is made once
    for the rows of many clients, for each of which a walk would cost too much.
    """
    return _builder(template, iter(names))


def _builder(template: Any, names: Iterator[str]) -> Callable[[Mapping[str, Tensor]], Any]:
    if not isinstance(template, (tuple, list, dict)):
        return itemgetter(next(names))
    if not template:
        return lambda named: template
    if isinstance(template, dict):
        parts = {key: _builder(part, names) for key, part in template.items()}
        return lambda named: {key: build(named) for key, build in parts.items()}
    builds = [_builder(part, names) for part in template]
    make = getattr(template, "_make", type(template))
    return lambda named: make([build(named) for build in builds])


def restore(template: Any, named: Mapping[str, Tensor], prefix: str) -> Any:
    """A tree of the template's structure from its leaves by name, also by number: the inverse of `flatten`."""
    names = list(flatten(prefix, template))
    return restorer(template, names if all(name in named for name in names) else numbered(names))(named)
