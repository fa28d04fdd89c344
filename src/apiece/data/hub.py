"""Datasets of Hugging Face, with any column names."""

from __future__ import annotations

from typing import Any

import numpy as np

from apiece.data.arrays import Dataset, from_arrays
from apiece.data.columns import CLIENTS, EVERYTHING, TARGETS, Columns, chosen
from apiece.data.frames import from_frame
from apiece.data.images import place, stacked, unreadable
from apiece.errors import UserError


def from_huggingface(
    dataset: Any, name: str = "huggingface", classes: int | None = None, columns: Columns = EVERYTHING
) -> Dataset:
    """A `datasets.Dataset`, or a dictionary of them with "train" and perhaps "test": an image and a label column.

    Unless `columns` names others, the image is the first column of images, the label `label`, `fine_label` or the first
    of classes; a column named client, client_id, writer_id, user_id or user names each sample's owner. If there is no
    image, all other columns are the features of a table. `classes`: see `from_arrays`.
    """
    parts = dataset if isinstance(dataset, dict) else {"train": dataset}
    if "train" not in parts:
        raise UserError(f"{name}: has the parts {', '.join(parts)}; it needs one named train.")
    if not all(hasattr(part, "__len__") for part in parts.values()):
        raise UserError(f"{name}: it is a stream without a length; load it as a whole, without streaming=True.")
    kinds = {column: type(feature).__name__ for column, feature in parts["train"].features.items()}
    pictures = [column for column, kind in kinds.items() if kind == "Image" and column in (columns.input or kinds)]
    labels = [column for column, kind in kinds.items() if kind == "ClassLabel"]
    roles = chosen(name, list(kinds), columns, (*TARGETS[:2], *labels, *TARGETS[2:]), CLIENTS)
    if pictures and len(columns.input) > 1:
        raise UserError(f"{name}: input={', '.join(columns.input)} mixes images with others: give the images alone.")
    for part in parts.values():
        if lacking := [column for column in (*pictures[:1], roles.target) if column not in part.features]:
            raise UserError(f"{name}: one of its parts lacks the column {lacking[0]!r}: make them alike.")
    if not pictures:
        given = columns._replace(input=tuple(roles.input), target=roles.target, client=roles.client)
        held = parts["test"].to_pandas() if "test" in parts else None
        return from_frame(parts["train"].to_pandas(), name, given, test=held)

    def read(part: Any) -> list[Any]:
        images = list[Any]()
        try:
            images.extend(row[pictures[0]] for row in part)
        except Exception as error:  # the decoders of damaged images raise errors of many kinds
            raise unreadable(f"{name}, {place(len(images))}", error) from error
        return [
            stacked(name, images, columns.resize),
            part[roles.target][:],
            np.asarray(part[roles.client]) if roles.client in part.features else None,
        ]

    x, y, natural = read(parts["train"])
    x_test, y_test, natural_test = read(parts["test"]) if "test" in parts else (None, None, None)
    return from_arrays(name, x, y, x_test, y_test, natural, natural_test, classes=classes, task=columns.task)
