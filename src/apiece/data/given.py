"""Whatever a program gives as its data, as one `Dataset`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from os import PathLike
from typing import Any

from apiece.data import sound
from apiece.data.arrays import Dataset, from_arrays
from apiece.data.catalog import OWN
from apiece.data.columns import EVERYTHING, Columns, refuse_columns
from apiece.data.federation import Federation, MadeFederation
from apiece.data.frames import from_frame, is_frame, is_plain, plain
from apiece.data.hub import from_huggingface
from apiece.data.items import by_client, given, is_items, named
from apiece.data.trees import from_trees, is_tree
from apiece.errors import UserError

TARGET, CLIENT = "the labels", "the client"  # columns that are added to frames
PARTS = ("train", "test", "validation")


def as_dataset(data: Any, columns: Columns = EVERYTHING) -> Dataset:
    """The data set of arrays or trees (x, y) or (x_train, y_train, x_test, y_test), a frame, a pair (frame, labels), a
    dataset of Hugging Face or a map-style one of PyTorch, of a list or dictionary with one of these for each client, or
    of {"train": ..., "test": ...} with one of all these as each part. A Dataset is left as it is. Raises UserError for
    anything else.
    """
    if isinstance(data, Dataset):
        refuse_columns(data.name, columns)
        return data if data.held is None else replace(data, held=None)  # a list of indices means its training samples
    if isinstance(data, (tuple, list)) and len(data) == 4 and is_frame(data[0]) and not is_plain(data[0]):
        data = {"train": tuple(data[:2]), "test": tuple(data[2:])}
    parts = data if isinstance(data, Mapping) and "train" in data else {"train": data}
    train, test = parts["train"], parts.get("test")
    if _of_hugging_face(data) or _of_hugging_face(train):
        return from_huggingface(data, OWN, columns=columns)
    if strange := {str(part) for part in parts}.difference(PARTS):
        raise UserError(f"data has the parts {', '.join(map(str, parts))}: give train and test, not {min(strange)!r}.")
    frames = [_frame(train)] + ([] if test is None else [_frame(test)])
    if frames[0] is not None:
        if frames[-1] is None:
            raise UserError("the training samples are a frame, and the test samples are none: give both as frames.")
        found = [name for name in (TARGET, CLIENT) if name in frames[0].columns]
        roles: dict[str, Any] = {"target" if name == TARGET else "client": name for name in found}
        return from_frame(frames[0], OWN, columns._replace(**roles), test=frames[1] if len(frames) > 1 else None)
    return _of_arrays(train, test, columns)


def _of_arrays(train: Any, test: Any, columns: Columns) -> Dataset:
    if not (by_client(train) or is_items(train) or isinstance(train, (tuple, list)) and len(train) in (2, 4)):
        raise _refused(train)
    one = given(OWN, train, columns)
    if test is not None:
        two = given(f"{OWN}, test", test, columns)
        if one.owner is None and two.owner is not None:
            raise UserError("test is given by client, and train is not: give both so, or train alone.")
        if one.owner is not None and two.owner is not None and (strange := {*two.owner} - {*one.owner}):
            raise UserError(f"client {str(min(strange))!r} has test samples and none to train on: give it some.")
        one = one._replace(x_test=two.x, y_test=two.y, owner_test=two.owner)
    if any(is_tree(part) for part in (one.x, one.y, one.x_test, one.y_test) if part is not None):
        return from_trees(OWN, *one.in_order)
    return from_arrays(OWN, *one.in_order, task=columns.task)


def _of_hugging_face(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "datasets" and not isinstance(data, list)


def _frame(part: Any) -> Any:
    """A part as one frame: a frame, a pair of a frame that is more than numbers and its labels, or one of these for
    each client; None for anything else.
    """
    if is_frame(part) or (_labeled(part) and not is_plain(part[0])):
        return _whole(part)
    clients = named(OWN, part) if by_client(part) else {}
    if not clients or not all(is_frame(own) or _labeled(own) for own in clients.values()):
        return None
    import pandas

    frames = {name: _whole(own).assign(**{CLIENT: name}) for name, own in clients.items()}
    if empty := next((name for name, frame in frames.items() if not len(frame)), None):
        raise UserError(f"client {empty!r} has no sample: give it one or more.")
    return pandas.concat(frames.values(), ignore_index=True)


def _labeled(part: Any) -> bool:
    """Whether this is a frame and its labels."""
    return isinstance(part, (tuple, list)) and len(part) == 2 and is_frame(part[0]) and not is_frame(part[1])


def _whole(part: Any) -> Any:
    return plain(part) if is_frame(part) else _with_labels(*part)


def _with_labels(frame: Any, labels: Any) -> Any:
    table = plain(frame)
    if not isinstance(labels, list) and (axes := sound.as_array(labels).ndim) != 1:
        found = f"have {axes} axes" if axes else f"are of type {type(labels).__name__}"
        raise UserError(f"the labels of the frame {found}: give a list or an array of one label for each row.")
    if len(table) != len(labels):
        raise UserError(f"the frame has {len(table)} rows, for {len(labels)} labels: give one label for each.")
    return table.assign(**{TARGET: getattr(labels, "to_numpy", lambda: labels)()})


def _refused(data: Any) -> UserError:
    if isinstance(data, Federation | MadeFederation):
        return UserError(
            f"data is a {type(data).__name__}, whose clients are ready: give it as clients=, without data."
        )
    if type(data).__name__ == "DataLoader":
        return UserError("data is a DataLoader: give its .dataset, because apiece makes the batches of each client.")
    if isinstance(data, Iterator):
        return UserError(f"data is a {type(data).__name__}, which is read only once: give list(...) of it as arrays.")
    if isinstance(data, str | PathLike):
        return UserError(
            f"{str(data)!r} is a part of data, and paths and names are read as a whole: give one path alone, as data, "
            "or read the parts before. A folder may have one file, or one folder of images, per client; a table may "
            "have a client column."
        )
    if isinstance(data, Mapping) and data:
        name, odd = next((name, part) for name, part in data.items() if not by_client([part]))
        if isinstance(odd, str | PathLike):
            return _refused(odd)
        what = f"{len(odd)} parts" if isinstance(odd, tuple | list | Mapping) else f"a {type(odd).__name__}"
        return UserError(
            f"data is a dictionary by client, and {str(name)!r} holds {what}: give each client a pair (x, y), four of "
            "(x, y, x_test, y_test), a frame, or a dataset."
        )
    if isinstance(data, list) and data and all(isinstance(one, tuple) and len(one) == 2 for one in data):
        return UserError(
            "data is a list of single samples: give the pair (x, y) of all inputs and all targets, or collate=, which "
            "makes it of the list."
        )
    return UserError(
        f"data of type {type(data).__name__} is not understood: give (x, y) arrays, (x_train, y_train, x_test, "
        "y_test), a frame, a dataset of PyTorch or Hugging Face, a list or dictionary of these by client, a path, or a "
        "name."
    )
