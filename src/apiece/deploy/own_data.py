"""A node's own data: read as `apiece run` reads data, and never sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from apiece.config.model import reading_of
from apiece.config.reading import as_taken
from apiece.data.arrays import Dataset, as_task, numbered, task_of
from apiece.data.columns import Columns
from apiece.data.federation import federation
from apiece.data.preparing import Part
from apiece.data.sources import load
from apiece.deploy.facts import Facts, doubt
from apiece.errors import UserError, meant


class Own(NamedTuple):
    """What a node trains on and is tested on, as (x, y)."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def read(path: str, columns: Columns, model: str, task: str) -> Dataset:
    """The data at a path; raises UserError for data that a node cannot train on."""
    if not Path(path).exists():
        what = f"{meant(path)}give the path of this node's own data"
        raise UserError(f"--data {path}: there is no such file or folder; {what}.")
    dataset = as_taken(as_task(load(path, None, reading_of(model), columns), task), None, None)
    if dataset.inputs_train is not None:
        raise UserError(f"--data {path}: its samples have several parts, which nodes do not take; give one array.")
    return dataset


def facts(dataset: Dataset, name: str) -> Facts:
    """What the node tells of its data; raises UserError for data that it cannot tell of."""
    (x, y), (_, y_test) = samples(dataset, ())
    known = dataset.known if dataset.targets_train is None else None
    labels = [] if known is None else known.tolist()
    kinds = {True: "float", False: "int64"}
    task, classes = task_of(dataset), dataset.classes
    if task == "segmentation":  # of pixels
        classes = max([1, *(1 + int(part.max()) for part in (y, y_test) if len(part))])
    made = Facts(
        name,
        len(y),
        len(y_test),
        list(x.shape[1:]),
        kinds[x.is_floating_point()],
        list(y.shape[1:]),
        kinds[y.is_floating_point()],
        task,
        classes,
        labels,
        columns(dataset),
    )
    if why := doubt(vars(made)):
        raise UserError(f"node {name!r} cannot tell the others of its data, as {why}: change that, and join anew.")
    return made


def columns(dataset: Dataset) -> list[str]:
    """The columns that became the sample, in order, and what was made of them; none where data have no columns."""
    preparation = dataset.preparation
    return [*dataset.columns] if preparation is None else [_called(part) for part in preparation.parts]


def _called(part: Part) -> str:
    """A prepared column as people read it: its name, and the words that it may have or what became of its numbers."""
    return f"{part.name} ({'standardized' if part.categories is None else ', '.join(part.categories)})"


def samples(dataset: Dataset, labels: tuple[Any, ...] | list[Any], dtype: torch.dtype = torch.float32) -> Own:
    """The samples as tensors; their classes are numbered as by all nodes (`labels`), or as here if that is empty."""
    if len(labels) and dataset.known is not None:
        known, everything = dataset.known, np.asarray(labels)
        number = numbered(known, everything, dataset.name)
        dataset = replace(
            dataset,
            y_train=number[dataset.y_train],
            y_test=number[dataset.y_test],
            known=everything,
            classes=len(everything),
        )
    rows = [np.arange(len(dataset.y_train))], [np.arange(len(dataset.y_test))]
    whole: Any = SimpleNamespace(train=rows[0], test=rows[1], names=["all"], unseen=())
    made = federation(dataset, whole, dtype)
    return Own(made.pool, made.test_pool)
