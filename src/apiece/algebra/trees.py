"""Trees of tensors, as slots return them: what they consist of, whether two are alike, and what they are in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, cast

from torch import Tensor

from apiece.algebra.message import MARKS

FEW = 4  # parts of a tuple or a dict that a sentence names


def parts_of(tree: Any) -> list[Any] | None:
    """What a tuple, a list or a dict consists of, in the order of its keys; None for anything else, which is a leaf."""
    if isinstance(tree, dict):
        return [part for _, part in sorted(cast("dict[Any, Any]", tree).items(), key=lambda pair: repr(pair[0]))]
    return list(cast("Sequence[Any]", tree)) if isinstance(tree, tuple | list) else None


def every_leaf(holds: Callable[[Any], bool], tree: Any) -> bool:
    """Whether this holds of every leaf, or of a tree as a whole that it is in."""
    parts = parts_of(tree)
    return holds(tree) or (parts is not None and all(every_leaf(holds, part) for part in parts))


def versions(tensors: Sequence[Tensor]) -> list[int]:
    """How often each was changed in place; torch counts it, but not of the stacked clients of one call."""
    return [tensor._version for tensor in tensors]


def of_tensors(tree: Any) -> bool:
    return every_leaf(lambda leaf: isinstance(leaf, Tensor), tree)


def of_marks(tree: Any) -> bool:
    return every_leaf(lambda part: isinstance(part, MARKS) and of_tensors(part.x), tree)


def alike(one: Any, other: Any) -> bool:
    """Whether two trees of tensors have one structure, and everywhere the same shapes and types."""
    if one is other:
        return True
    if isinstance(other, Tensor):
        return isinstance(one, Tensor) and one.shape == other.shape and one.dtype == other.dtype
    parts, usual = parts_of(one), parts_of(other)
    if _kind(one) is not _kind(other) or parts is None or usual is None or len(parts) != len(usual):
        return False
    return (not isinstance(one, dict) or one.keys() == other.keys()) and all(map(alike, parts, usual))


def _kind(tree: Any) -> type[Any]:
    """The type, which for dicts of any kind is that of the plain ones that rows keep."""
    return dict if isinstance(tree, dict) else type(cast("object", tree))


def described(value: Any) -> str:
    """A value in words: a tensor's shape and type, what a tuple or a dict consists of, or else the value's type."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)} and type {str(value.dtype).removeprefix('torch.')}"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value) if value is None else f"{value!r:.40} ({_a(value)})"
    parts, name = parts_of(value), type(value).__name__
    if parts is None or len(parts) > FEW:
        return "a function" if isinstance(value, FunctionType) else _a(value)
    if isinstance(value, dict):
        named = zip(sorted(map(repr, cast("dict[Any, Any]", value))), map(described, parts), strict=True)
        return f"{{{', '.join(map(': '.join, named))}}}"
    return f"{name if hasattr(value, '_fields') else ''}({', '.join(map(described, parts))})"


def _a(value: Any) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"
