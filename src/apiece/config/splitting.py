"""A split from its text: `make_split(dataset, "dirichlet(0.1)", clients=10, seed=0)`; how a run reads its data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils._pytree import tree_map

from apiece.config.model import refuse_own
from apiece.config.names import one
from apiece.config.settings import Config
from apiece.data.arrays import Dataset
from apiece.data.columns import PREPARATION, Columns, size_of
from apiece.data.ownership import Listed
from apiece.data.partitions import Splitter
from apiece.data.split import Split, split_over_clients


def columns_of(config: Config) -> Columns:
    """What a run says of its data, with the preparation that its folder keeps."""
    c, kept = config, None if config.out is None else Path(config.out) / PREPARATION
    return Columns(c.input, c.target_column, c.client_column, size_of(c.resize), c.prepare, c.fit, kept, c.task)


def given_splitter(split: Any) -> Any:
    """The splitter that a program gave, as lists of indices or as itself; None for a text."""
    if isinstance(split, (list, tuple, Mapping)):
        return Listed.of(split)
    return split if callable(split) and not isinstance(split, type) else None


def split_of(config: Config, dataset: Dataset, splitter: Splitter | None = None) -> Split:
    """The run's split of its data; a splitter that a program gave replaces the one that the configuration names."""
    if splitter is None:
        refuse_own(config.split, "split")
    made = splitter or config.split
    return make_split(dataset, made, config.clients, config.seed, config.unseen, config.validation)


def on_validation(dataset: Dataset, split: Split) -> tuple[Dataset, Split]:
    """The data and their split with the validation samples in place of the test set: all clients' together are the
    global ones, and each client has its own.
    """
    chosen = np.unique(np.concatenate(split.validation))
    names = ("x", "y", "natural", "targets", "inputs")
    whole = {name: part for name in names if (part := getattr(dataset, f"{name}_train")) is not None}
    parts = {f"{name}_test": tree_map(lambda leaf: leaf[chosen], part) for name, part in whole.items()}
    own = [np.searchsorted(chosen, rows) for rows in split.validation]
    return replace(dataset, **parts), replace(split, test=own)


def make_split(
    dataset: Dataset,
    splitter: Splitter | str,
    clients: int | None,
    seed: int,
    unseen: float = 0,
    validation: float = 0.0,
) -> Split:
    """Divide a data set over clients by a splitter or its text: see `split_over_clients`.

    Args:
        dataset: what is divided.
        splitter: an expression, "dirichlet(0.1)", or what it makes; `apiece data` lists them.
        clients: how many; None where the data say it (natural, given).
        seed: of the split; the same seed gives the same split.
        unseen: how many clients never train, or below 1 which share.
        validation: the share of each client's samples that is held out from training.

    >>> from apiece import load
    >>> make_split(load("digits"), "dirichlet(0.5)", clients=4, seed=0).names
    ['client-0', 'client-1', 'client-2', 'client-3']
    """
    made: Splitter = one("split", splitter) if isinstance(splitter, str) else splitter
    return split_over_clients(dataset, made, clients, seed, unseen, validation)
