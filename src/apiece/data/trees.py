"""Samples of several parts, or of unequal length, as one tree of arrays: a `Dataset` whose inputs are that tree.

A tree is a dict or a tuple of arrays with a row for each sample. A list is one part: one array for each sample. Where
these have unequal length [T_i, ...], they are padded once to the longest, and a mask [n, T] says which steps are real.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch.utils._pytree import tree_leaves, tree_map

from apiece.data import sound
from apiece.data.arrays import Dataset, from_arrays, unread
from apiece.data.tokens import IGNORED
from apiece.errors import UserError

Tree = Any
PARTS = ("the training samples", "the test samples")
HF = ("input_ids", "attention_mask")  # the names by which models of transformers know tokens and their mask


def is_tree(x: Any) -> bool:
    """Whether samples have several parts, or unequal lengths. A tuple of numbers or of rows of numbers is one part."""
    if isinstance(x, tuple):
        return bool(x) and all(map(_is_whole, x))
    return isinstance(x, dict) or (isinstance(x, list) and _ragged(x))


def from_trees(
    name: str, x: Tree, y: Tree, x_test: Tree = None, y_test: Tree = None, owner: Any = None, owner_test: Any = None
) -> Dataset:
    """A data set whose inputs, and targets if they are a tree, are trees of arrays [n, ...]; UserError where they do
    not fit. `owner` and `owner_test` name each sample's client. The first part of the targets divides the samples,
    where it is one label a sample.
    """
    tested = sound.tested(name, x_test, y_test)
    size = rows(f"{name}, training samples", x, y)
    held = rows(f"{name}, test samples", x_test, y_test) if tested else 0
    inputs = _arrays(name, joined([x, x_test], PARTS) if tested else x, 0)
    y = joined([y, y_test], PARTS) if tested else y
    targets = sound.as_array(y) if _are_texts(y) else _arrays(name, y, IGNORED)
    if isinstance(inputs, dict):
        _refuse_other_masks(name, inputs)
    label = _label(targets)
    x, y = unread(size), label[:size]
    dealt = from_arrays(name, x, y, *((unread(held), label[size:]) if tested else (None, None)), owner, owner_test)
    testing = np.arange(size + held) >= size if dealt.held is None else dealt.held
    own, other = np.flatnonzero(~testing), np.flatnonzero(testing)
    several = label is not targets  # otherwise the labels themselves are the targets
    first = tree_leaves(inputs)[0]
    return replace(
        dealt,
        x_train=first[own],
        x_test=first[other],
        inputs_train=taken(inputs, own),
        inputs_test=taken(inputs, other),
        targets_train=taken(targets, own) if several else dealt.targets_train,
        targets_test=taken(targets, other) if several else dealt.targets_test,
    )


def _ragged(part: list[Any]) -> bool:
    """Whether these are sequences of unequal length."""
    lengths = {len(one) if isinstance(one, list | tuple) or np.ndim(one) else -1 for one in part}
    return len(lengths) > 1 and -1 not in lengths


def _is_whole(part: Any) -> bool:
    """Whether this is a part with a row for each sample: an array, a list of rows, or a tree of such parts."""
    if isinstance(part, list):
        return bool(part) and hasattr(part[0], "__len__") and not isinstance(part[0], str)
    return isinstance(part, dict) or is_tree(part) or bool(getattr(part, "shape", ()))


def _are_texts(y: Tree) -> bool:
    """Whether the targets are one text a sample."""
    return is_part(y) and sound.as_array(y[:1]).dtype.kind in "US"


def is_part(tree: Any) -> bool:
    return not isinstance(tree, dict | tuple)


def rows(where: str, x: Tree, y: Tree) -> int:
    """The number of samples; UserError where parts have other numbers of rows, or none."""
    parts = tree_leaves((x, y), is_leaf=is_part)
    odd = next((one for one in parts if not hasattr(one, "__len__") or isinstance(one, str)), None)
    if odd is not None or not parts:
        raise UserError(f"{where}: a part is {odd!r:.60}: give arrays with a row for each sample.")
    sizes = sorted({len(one) for one in parts})
    if len(sizes) > 1 or not sizes[0]:
        raise UserError(f"{where}: parts have {' and '.join(map(str, sizes))} rows; give each a row a sample.")
    return sizes[0]


def taken(tree: Tree, rows: Any) -> Tree:
    """These rows, a slice or an array of indices, of every part of the tree."""
    return tree_map(lambda part: part[rows], tree, is_leaf=is_part)


def joined(trees: Sequence[Tree], whose: Sequence[str]) -> Tree:
    """The parts of all trees, one after the other; UserError where these differ. `whose` samples each tree holds, in
    words.
    """
    first, forms = trees[0], [_form(tree) for tree in trees]
    if (odd := next((i for i, form in enumerate(forms) if form != forms[0]), None)) is not None:
        raise UserError(f"{whose[0]} have {_said(first)}, and {whose[odd]} {_said(trees[odd])}: give all the same.")
    if isinstance(first, dict):
        return {key: joined([tree[key] for tree in trees], whose) for key in first}
    if isinstance(first, tuple):
        return tuple(joined(parts, whose) for parts in zip(*trees, strict=True))
    if any(isinstance(part, list) for part in trees):
        return [row for part in trees for row in part]
    arrays = [sound.as_array(part) for part in trees]
    if (odd := next((i for i, one in enumerate(arrays) if one.shape[1:] != arrays[0].shape[1:]), None)) is not None:
        shapes = [list(one.shape[1:]) for one in (arrays[0], arrays[odd])]
        raise UserError(f"{whose[0]} are {shapes[0]}, {whose[odd]} {shapes[1]}: make them alike.")
    return np.concatenate(arrays)


def _form(tree: Tree) -> Any:
    return frozenset(tree) if isinstance(tree, dict) else len(tree) if isinstance(tree, tuple) else None


def _said(tree: Tree) -> str:
    """Of which parts samples consist, in words."""
    if isinstance(tree, dict):
        return f"the parts {', '.join(map(str, tree))}"
    return f"{len(tree)} parts in order" if isinstance(tree, tuple) else "one part"


def _arrays(name: str, tree: Tree, fill: int) -> Tree:
    """The tree with an array for each part; parts of unequal length are padded with `fill`, beside their masks."""
    if isinstance(tree, dict):
        made = {key: _arrays(name, part, fill) for key, part in tree.items()}
        masks = {
            HF[1] if key == HF[0] else f"{key}_mask": mask for key, one in made.items() if isinstance(one, tuple)
            for mask in one[1:]
        }  # fmt: skip
        return {**masks, **{key: one[0] if isinstance(one, tuple) else one for key, one in made.items()}}
    if isinstance(tree, tuple):
        return tuple(_arrays(name, part, fill) for part in tree)
    if isinstance(tree, list) and _ragged(tree):
        values, mask = _padded(name, [sound.as_array(one) for one in tree], fill)
        return values if fill and values.dtype.kind == "i" else (values, mask)
    return _sound(name, sound.as_array(tree))


def _padded(name: str, rows: list[np.ndarray], fill: int) -> tuple[np.ndarray, np.ndarray]:
    """(the sequences [n, T, ...] padded at their end, which steps are real [n, T])."""
    shapes = sorted({row.shape[1:] for row in rows})
    if len(shapes) > 1:
        raise UserError(
            f"{name}: steps of sequences have the shapes {shapes[:3]}: give each step the same, or, if these are "
            "images, resize=32."
        )
    if rows[0].ndim > 2 and rows[0].dtype == np.uint8:
        raise UserError(f"{name}: images have unequal sizes: give resize=32, or floats if they are sequences of rows.")
    lengths = np.array([len(row) for row in rows])
    if not lengths.all():
        raise UserError(f"{name}: sequence {int(np.argmin(lengths))} (counted from 0) is empty: leave it out.")
    kind = np.result_type(*{row.dtype for row in rows})
    out = np.full((len(rows), lengths.max(), *shapes[0]), fill if kind.kind in "iu" else 0, dtype=kind)
    for place, row in enumerate(rows):
        out[place, : len(row)] = row
    return _sound(name, out), np.arange(lengths.max()) < lengths[:, None]


def _sound(name: str, part: np.ndarray) -> np.ndarray:
    """A part as float32, int64 or bool; UserError for what is no number, and for NaN."""
    if part.dtype.kind not in "buif":
        raise UserError(f"{name}: a part has the type {part.dtype}: give numbers, text as tokens.")
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused below
        part = part.astype({"u": np.int64, "i": np.int64, "f": np.float32, "b": np.bool_}[part.dtype.kind])
    sound.finite(name, part)
    return part


def _refuse_other_masks(name: str, inputs: dict[str, np.ndarray]) -> None:
    """Refuse a mask of another shape than what it masks: models of transformers would take it."""
    shapes = [list(inputs[key].shape[1:]) for key in HF if key in inputs]
    if len(shapes) == 2 and shapes[0] != shapes[1]:
        raise UserError(f"{name}: {HF[0]} has rows of {shapes[0]}, and {HF[1]} rows of {shapes[1]}: make them alike.")


def _label(targets: Tree) -> np.ndarray:
    """What divides the samples among clients: the first part of the targets if it is one whole number a sample, else
    the same for all.
    """
    first = tree_leaves(targets)[0]
    if first.ndim == 1 and (first is targets or first.dtype.kind == "i"):
        return first
    return np.zeros(len(first), dtype=np.int64)
