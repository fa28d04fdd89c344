"""A client that a run never saw: its samples, read as the run read its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from apiece.config.assemble import Experiment
from apiece.config.model import reading_of
from apiece.config.splitting import columns_of
from apiece.data import sound
from apiece.data.archives import KEYS, archive
from apiece.data.arrays import Dataset, numbered
from apiece.data.federation import Federation, federation, tensors
from apiece.data.folders import ARRAYS, JSONL, TABLES, kind_of
from apiece.data.frames import samples_of
from apiece.data.images import resized, samples_in
from apiece.data.split import Split
from apiece.data.tasks import REAL, UNLABELED, refuse_misfit
from apiece.data.texts import from_jsonl
from apiece.errors import UserError, meant


def newcomer(experiment: Experiment, data: Path) -> Federation:
    """A federation of the new client alone, with its samples read as the run's own."""
    text = experiment.dataset is not None and experiment.dataset.text
    setting = experiment.federated.setup.setting
    assert setting is not None
    rows = len(setting.shape) == 1  # of a table, or arrays of such
    _refuse_kind(data, JSONL if text else (*TABLES, *ARRAYS) if rows else ARRAYS, folders=not text and not rows)
    if experiment.dataset is not None and text:
        texts = from_jsonl(data, reading_of(experiment.config.model), known=experiment.dataset.known)
        train, test = (np.arange(len(x)) for x in (texts.x_train, texts.x_test))
        return federation(texts, Split([train], [train[:0]], [test], [texts.name]))
    arrays = _arrays(experiment, data)
    if not {"x_train", "y_train"} <= set(arrays) or ("x_test" in arrays) != ("y_test" in arrays):
        raise UserError(
            f"{data}: it has {', '.join(arrays) or 'no array that is read'}: give x_train and y_train, and x_test and "
            "y_test or neither."
        )
    federated, dataset = experiment.federated, experiment.dataset
    known = np.arange(setting.classes) if dataset is None or dataset.known is None else dataset.known
    name, dtype = federated.setup.task.name, federated.setup.initial.dtype
    prepared = dataset is not None and dataset.preparation is not None and kind_of(data) is not TABLES
    as_table = "; a .csv or .parquet with the run's columns is prepared as its table was" if prepared else ""

    def part(which: str) -> tuple[Tensor, Tensor]:
        x, y = (arrays[f"{name}_{which}"] for name in "xy")
        given = sound.samples(str(data), which, resized(str(data), x, y, columns_of(experiment.config).resize))
        y = _targets(str(data), which, y, name, given.shape[1:], known)
        if dataset is None:
            x = torch.from_numpy(given).to(dtype)
        else:
            _same_scale(str(data), given, dataset)
            x = tensors(dataset, given, dtype)
        if len(x) != len(y) or not len(y) or tuple(x.shape[1:]) != setting.shape:
            raise UserError(
                f"{data}: {len(x)} samples of shape {list(x.shape[1:])} and {len(y)} labels in {which}; the run has "
                f"samples of shape {list(setting.shape)}: give one label each, and some{as_table}."
            )
        return x, torch.from_numpy(y).to(dtype) if y.dtype.kind == "f" else torch.from_numpy(y)

    pool = part("train")
    tested = {"x_test", "y_test"} <= set(arrays)
    test = part("test") if tested else (pool[0][:0], pool[1][:0])
    place = Federation(pool, test, [torch.arange(len(pool[1]))], [torch.arange(len(test[1]))], [data.stem])
    return place.on(federated.setup.initial.device)


def _refuse_kind(data: Path, endings: Sequence[str], folders: bool) -> None:
    """Raise UserError for what cannot hold a new client's samples, read as the run read its own."""
    if not data.exists():
        raise UserError(f"{data}: no such file; {meant(data)}give the new client's samples.")
    if not data.name.lower().endswith(tuple(endings)) and not (folders and data.is_dir()):
        also = ", or a folder of images with one folder per class" if folders else ""
        raise UserError(f"{data}: the samples of a client of this run are a file {', '.join(endings)}{also}.")


def _arrays(experiment: Experiment, data: Path) -> dict[str, Any]:
    """The arrays x_train, y_train, and x_test, y_test if any, of a client's file or folder of images."""
    dataset, columns = experiment.dataset, columns_of(experiment.config)
    if kind_of(data) is TABLES:
        return samples_of(data, columns, dataset.preparation if dataset is not None else None)
    if data.is_dir():
        return samples_in(data, columns.resize)
    with archive(data) as stored:
        return {name: stored[name] for name in KEYS if name in stored.files}


def _targets(where: str, which: str, y: Any, task: str, shape: tuple[int, ...], known: np.ndarray) -> np.ndarray:
    """The client's targets, as the run's task has them: the numbers of known labels, or the targets themselves."""
    if task in (*UNLABELED, "multilabel"):
        read = sound.targets(where, which, np.asarray(sound.plain(y)), real=task in REAL or task == "multilabel")
        refuse_misfit(task, read, shape)
        return read
    return numbered(sound.labels(where, which, y), known, where)


def _same_scale(where: str, x: np.ndarray, dataset: Dataset) -> None:
    """Refuse images on another scale than the run's: uint8 is read as levels from 0 to 1, other numbers as they are."""
    levels = dataset.x_train.dtype == np.uint8
    if x.ndim < 3 or not len(x) or (x.dtype == np.uint8) == levels or (levels and x.min() >= 0 and x.max() <= 1):
        return
    raise UserError(
        f"{where}: images of {x.dtype} from {x.min():g} to {x.max():g}, and the run's are {dataset.x_train.dtype}: "
        f"give them so{', or from 0 to 1' if levels else ''}."
    )
