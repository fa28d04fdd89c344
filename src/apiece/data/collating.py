"""Samples of any kind, made inputs and targets by a `collate` of the user's, once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch.utils._pytree import tree_map

from apiece.data.arrays import Dataset
from apiece.data.frames import is_frame
from apiece.data.items import is_items, read_items
from apiece.data.trees import is_part, rows, taken
from apiece.errors import UserError, said

Collate = Callable[[list[Any]], Any]


def collated(name: str, data: Any, collate: Collate) -> Any:
    """The same data, of which a `collate` made the samples (inputs, targets): it is called once with the list of all,
    and returns a pair, or a mapping in which the targets are `labels`.

    Data are a list or a dataset of samples, a pair (x, y) of their parts, one of these for each client by name (or a
    list of datasets or of lists of pairs), or {"train": ..., "test": ...} of these. All are padded alike.
    """
    samples: list[Any] = []

    def place(part: Any) -> range:
        start = len(samples)
        samples.extend(_samples(name, part))
        return range(start, len(samples))

    places = _places(data, place)
    x, y = _called(name, samples, collate)
    if isinstance(places, range):
        return x, y
    if (found := rows(f"{name}, what collate returns", x, y)) != len(samples):
        raise UserError(f"{name}: collate makes {found} rows of {len(samples)} samples: let it return a row for each.")
    return _apart(places, x, y)


def _places(data: Any, place: Callable[[Any], range]) -> Any:
    """The data with the numbers of their samples in place of these."""
    if isinstance(data, Mapping):
        return {str(key): _places(part, place) for key, part in data.items()}
    if isinstance(data, list) and data and all(map(_is_client, data)):
        return [_places(part, place) for part in data]
    if isinstance(data, tuple) and len(data) == 4:
        return place(data[:2]), place(data[2:])
    return place(data)


def _is_client(part: Any) -> bool:
    """Whether a part of a list holds a client's samples, and is no sample."""
    listed = isinstance(part, list) and bool(part) and all(isinstance(one, (tuple, Mapping)) for one in part)
    return listed or (is_items(part) and not hasattr(part, "shape"))


def _samples(name: str, part: Any) -> list[Any]:
    if isinstance(part, Dataset) or is_frame(part) or isinstance(part, str) or not hasattr(part, "__len__"):
        raise UserError(
            f"{name}: collate takes samples, and {type(part).__name__} is none of their lists: give a list or a "
            "dataset of samples, or leave collate out."
        )
    if isinstance(part, tuple) and len(part) == 2:
        count = rows(name, *part)
        row = lambda i: tree_map(lambda one: one[i], part, is_leaf=is_part)
        return [row(i) for i in range(count)]
    return read_items(name, part)


def _called(name: str, samples: list[Any], collate: Collate) -> tuple[Any, Any]:
    if not samples:
        raise UserError(f"{name}: it has no sample: give one or more.")
    try:
        made = collate(samples)
    except Exception as error:  # a function of the user's may raise anything
        raise UserError(f"{name}: collate fails on a list of {len(samples)} samples: {said(error)}") from error
    if isinstance(made, Mapping) and "labels" in made:
        return {key: part for key, part in made.items() if key != "labels"}, made["labels"]
    if isinstance(made, tuple | list) and len(made) == 2:
        return made[0], made[1]
    raise UserError(f"{name}: collate returns a {type(made).__name__}: let it return a pair (inputs, targets).")


def _apart(places: Any, x: Any, y: Any) -> Any:
    """The rows of inputs and targets at their places."""
    if isinstance(places, dict):
        return {key: _apart(part, x, y) for key, part in places.items()}
    if isinstance(places, list):
        return [_apart(part, x, y) for part in places]
    if isinstance(places, tuple):
        return tuple(part for own in places for part in _apart(own, x, y))
    own = slice(places.start, places.stop)
    return taken(x, own), taken(y, own)
