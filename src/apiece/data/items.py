"""Samples that a program gives: pairs of arrays, map-style datasets of PyTorch, and one of these for each client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor
from torch.utils import data as torch_data

from apiece.data import sound
from apiece.data.columns import CLIENTS, TARGETS, Columns, chosen, refuse_columns
from apiece.data.frames import is_frame
from apiece.data.images import is_image, refuse_masks, resized, stacked
from apiece.data.trees import is_tree, joined, rows
from apiece.errors import UserError, typed


class Given(NamedTuple):
    """Samples, targets, and the name of each sample's owner, if clients were given apart; then those for testing."""

    x: Any
    y: Any
    owner: np.ndarray | None = None
    x_test: Any = None
    y_test: Any = None
    owner_test: np.ndarray | None = None

    @property
    def in_order(self) -> tuple[Any, ...]:
        """As `from_arrays` and `from_trees` take them."""
        return self.x, self.y, self.x_test, self.y_test, self.owner, self.owner_test


def given(where: str, data: Any, columns: Columns) -> Given:
    """The arrays of a pair (x, y) or of four (x_train, y_train, x_test, y_test), of a dataset of items, or of a client
    after the other. Raises UserError for anything else.
    """
    if by_client(data):
        return _together(where, named(where, data), columns)
    if is_items(data):
        return _of_items(where, read_items(where, data), columns)
    if isinstance(data, (tuple, list)) and len(data) in (2, 4):
        refuse_columns(where, columns, images=True)
        x, y, *test = (sound.as_array(a) if isinstance(a, Tensor) else a for a in data)
        x_test, y_test = test or (None, None)
        x, x_test = (resized(where, *part, columns.resize) for part in ((x, y), (x_test, y_test)))
        return Given(x, y, x_test=x_test, y_test=y_test)
    raise UserError(
        f"{where}: a {type(data).__name__} is not understood here: give (x, y) arrays or a dataset of items, and the "
        "same kind for every client."
    )


def by_client(data: Any) -> bool:
    """Whether the data are given for each client apart: a dictionary by client's name, or a list of pairs or datasets;
    each part of {"train": ..., "test": ...} may be so.
    """
    if isinstance(data, Mapping):
        return by_client(data["train"]) if "train" in data else all(map(_is_client, data.values())) and bool(data)
    return isinstance(data, list) and bool(data) and all(map(_is_client, data))


def is_items(data: Any) -> bool:
    """Whether this is a dataset that gives its items by number, as PyTorch's are."""
    if isinstance(data, (str, bytes, Mapping, tuple, list, np.ndarray, Tensor)) or is_frame(data):
        return False
    return isinstance(data, torch_data.Dataset) or hasattr(type(data), "__getitem__")


def _is_client(value: Any) -> bool:
    pair = isinstance(value, (tuple, list)) and len(value) in (2, 4) and all(map(_has_rows, value))
    return pair or is_items(value) or is_frame(value)


def _has_rows(part: Any) -> bool:
    return isinstance(part, (dict, tuple, list)) or bool(getattr(part, "shape", ()))


def named(where: str, data: Any) -> dict[str, Any]:
    """Each client's data by its name: its key, or client-0, client-1, ... in a list."""
    parts = data.items() if isinstance(data, Mapping) else ((f"client-{i}", part) for i, part in enumerate(data))
    named = {str(name): part for name, part in parts}
    if len(named) < len(data):
        raise UserError(f"{where}: two clients have the same name: give each its own.")
    return named


def _together(where: str, clients: Mapping[str, Any], columns: Columns) -> Given:
    """All clients' samples in their order, each with the name of its client."""
    at = {name: f"{where}, client {name!r}" for name in clients}
    if all(map(is_items, clients.values())):
        return _pooled(where, at, {name: read_items(at[name], part) for name, part in clients.items()}, columns)
    each = {name: _client(at[name], part, columns) for name, part in clients.items()}
    tested = [name for name, part in each.items() if part.x_test is not None]
    if tested and len(tested) < len(each):
        lacking = next(name for name in each if name not in tested)
        raise UserError(
            f"{where}: client {lacking!r} has no test samples, as others have: give some to all of them, or to none."
        )
    train = _joined(where, {name: (part.x, part.y) for name, part in each.items()})
    if not tested:
        return train
    held = _joined(where, {name: (part.x_test, part.y_test) for name, part in each.items()})
    return train._replace(x_test=held.x, y_test=held.y, owner_test=held.owner)


def _pooled(where: str, at: Mapping[str, str], items: Mapping[str, list[Any]], columns: Columns) -> Given:
    """All clients' items as one dataset's, so that sequences are padded alike; a mistake is told of its client."""
    try:
        found = _of_items(where, [item for own in items.values() for item in own], columns)
    except UserError:
        for name, own in items.items():
            _of_items(at[name], own, columns)
        raise
    return found._replace(owner=np.repeat(np.array([*items]), [len(own) for own in items.values()]))


def _joined(where: str, parts: Mapping[str, tuple[Any, Any]]) -> Given:
    """The samples and targets of all clients, one after the other."""
    sizes = [rows(f"{where}, client {name!r}", *part) for name, part in parts.items()]
    owner, (x, y) = np.repeat(np.array([*parts]), sizes), zip(*parts.values(), strict=True)
    if _are_trees(x) or _are_trees(y):
        whose = [[f"the {what} of client {name!r}" for name in parts] for what in ("inputs", "targets")]
        return Given(joined(x, whose[0]), joined(y, whose[1]), owner)
    x, y = [sound.as_array(own) for own in x], [sound.as_array(own) for own in y]
    for what, each in (("samples", x), ("targets", y)):
        for (one, a), (two, b) in pairwise(zip(parts, each, strict=True)):
            other_kind = each is x and (a.dtype == np.uint8) != (b.dtype == np.uint8)
            if a.shape[1:] != b.shape[1:] or other_kind:
                first, other = (f"{own.dtype} of shape {list(own.shape[1:])}" for own in (a, b))
                raise UserError(
                    f"{where}: {what} of client {one!r} are {first}, those of {two!r} {other}: make them alike."
                )
    for name, own in zip(parts, x, strict=True):
        if own.dtype.kind == "f":  # a row is told by its client
            sound.finite(f"{where}, client {name!r}", own)
    return Given(np.concatenate(x), sound.together("data", *y), owner)


def _are_trees(parts: Sequence[Any]) -> bool:
    """Whether clients' samples have several parts, or unequal lengths, perhaps from one client to another alone."""
    lists = [part for part in parts if isinstance(part, list)]
    return any(map(is_tree, parts)) or (bool(lists) and is_tree([row for part in parts for row in part]))


def _client(where: str, part: Any, columns: Columns) -> Given:
    found = given(where, part, columns)
    for x, y in ((found.x, found.y), (found.x_test, found.y_test)):
        if x is None or is_tree(x) or is_tree(y):
            continue
        x, y = sound.as_array(x), sound.as_array(y)
        if not x.ndim or not y.ndim or not len(x) or len(x) != len(y):
            count = (
                "no sample" if not x.ndim or not len(x) else f"{len(x)} samples and {len(y) if y.ndim else 1} labels"
            )
            raise UserError(f"{where}: it has {count}: give one label for each, and one or more.")
    return found


def read_items(where: str, data: Any) -> list[Any]:
    """All items of a dataset; UserError where it has none, no length, or one that cannot be read."""
    if isinstance(data, torch_data.IterableDataset) or not hasattr(data, "__len__"):
        raise UserError(f"{where}: it is a stream without a length: give a dataset with __getitem__ and __len__.")
    items = list[Any]()
    try:
        for i in range(len(data)):
            items.append(data[i])
    except Exception as error:  # the program's own dataset may raise anything
        which = f"item {len(items)} (counted from 0) of the {type(data).__name__}"
        raise UserError(f"{where}: {which} cannot be read: {typed(error)}.") from error
    if not items:
        raise UserError(f"{where}: it has no sample: give one or more.")
    return items


def _of_items(where: str, items: list[Any], columns: Columns) -> Given:
    """Items of a dataset: pairs (x, y), or dictionaries whose fields are columns."""
    if isinstance(items[0], Mapping):
        return _of_fields(where, items, columns)
    refuse_columns(where, columns, images=True)
    for i, item in enumerate(items):
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            what = f"{len(item)} parts" if isinstance(item, (tuple, list)) else f"a {type(item).__name__}"
            raise UserError(
                f"{where}: item {i} (counted from 0) is {what}: give pairs (x, y), or dictionaries with a field for "
                "the target."
            )
    x, y = zip(*items, strict=True)
    return Given(_array(where, x, columns), _targets(where, y, columns))


def _of_fields(where: str, items: Sequence[Mapping[str, Any]], columns: Columns) -> Given:
    """Items that are dictionaries: one input keeps its shape, and several are put side by side, unless they are tokens
    or of unequal length: then each is a part by its name.
    """
    names = [str(name) for name in items[0]]
    if not all(isinstance(item, Mapping) and list(map(str, item)) == names for item in items):
        raise UserError(f"{where}: items have different fields: give each {', '.join(names)}.")
    roles = chosen(where, names, columns, TARGETS, CLIENTS)
    fields = {name: [item[name] for item in items] for name in (*roles.input, roles.target)}
    inputs = [_array(where, fields[name], columns) for name in roles.input]
    x: Any = inputs[0]
    if any(isinstance(part, list) or (part.ndim > 1 and part.dtype.kind == "i") for part in inputs):  # tokens
        x = dict(zip(roles.input, inputs, strict=True)) if len(inputs) > 1 else x
    elif len(inputs) > 1:
        x = np.concatenate([part.reshape(len(items), -1) for part in inputs], axis=1)
    owners = [] if roles.client is None else [item[roles.client] for item in items]
    sound.refuse_alike(where, owners)
    owner = np.array([str(one) for one in owners]) if owners else None
    return Given(x, _targets(where, fields[roles.target], columns), owner)


def _targets(where: str, values: Sequence[Any], columns: Columns) -> Any:
    """The target of each item: never resized."""
    if columns.resize is not None:
        refuse_masks(where, values)
    if is_image(values[0]):
        return stacked(where, values, masks=True)
    return _array(where, values, columns._replace(resize=None))


def _array(where: str, values: Sequence[Any], columns: Columns) -> Any:
    """One value of each item as one array, or a list of sequences of unequal length; raises UserError where their
    shapes differ otherwise.
    """
    if is_image(values[0]):
        return stacked(where, values, columns.resize)
    if columns.resize is not None and np.ndim(values[0]):
        return resized(where, [sound.as_array(value) for value in values], None, columns.resize)
    arrays = [sound.as_array(value) for value in values]
    shapes = sorted({a.shape for a in arrays})
    if len(shapes) > 1 and len({shape[1:] for shape in shapes}) == 1 and len(shapes[0]) in (1, 2):
        return arrays
    if len(shapes) > 1:
        raise UserError(
            f"{where}: items have {len(shapes)} shapes, such as {list(shapes[0])} and {list(shapes[-1])}: give all the "
            "same, or, for images, resize=32."
        )
    return np.stack(arrays)
