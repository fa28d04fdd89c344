"""A checksum of a run's data, by which its folder recognizes them."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from torch.utils._pytree import tree_leaves

from apiece.data.arrays import Dataset
from apiece.data.federation import Federation, MadeFederation, Numbered
from apiece.system.device import to_numpy

ROWS = 4096  # copied at a time


def fingerprint(clients: Any, dataset: Dataset | None) -> str:
    """Eight characters for the samples, the labels and the clients' rows; of data that are made on demand, for those of
    the first client that trains and those that all are tested on. None for clients that are on other machines.

    A data set's own arrays are used where there is one: numbers computed from them may differ by machine.
    """
    if isinstance(clients, MadeFederation):
        names = () if isinstance(clients.names, Numbered) else list(clients.names)
        told, rows = (clients, names, clients.unseen), ()
        pool = clients.samples(clients.participants[0]).pool
    elif isinstance(clients, Federation):
        told, rows = (list(clients.names), clients.unseen), (*clients.train, *clients.test)
        pool = clients.pool
    else:
        return ""
    crc = zlib.crc32(repr(told).encode())
    arrays = _arrays(dataset) if dataset else [to_numpy(t) for t in tree_leaves((pool, clients.test_pool))]
    for array in [*arrays, *map(to_numpy, rows)]:
        crc = zlib.crc32(repr((array.dtype.str, array.shape)).encode(), crc)
        for first in range(0, len(array), ROWS):
            crc = zlib.crc32(array[first : first + ROWS].tobytes(), crc)
    return f"{crc:08x}"


def _arrays(dataset: Dataset) -> list[np.ndarray]:
    d = dataset
    trees = (d.x_train, d.y_train, d.x_test, d.y_test, d.targets_train, d.targets_test, d.inputs_train, d.inputs_test)
    return [leaf for leaf in tree_leaves(trees) if leaf is not None]
