"""A split from its text: `make_split(dataset, "dirichlet(0.1)", clients=10, seed=0)`."""

from __future__ import annotations

from apiece.config.names import one
from apiece.data.arrays import Dataset
from apiece.data.partitions import Splitter
from apiece.data.split import Split, split_over_clients


def make_split(
    dataset: Dataset, splitter: Splitter | str, clients: int, seed: int, unseen: float = 0, validation: float = 0.0
) -> Split:
    """Divide a data set over clients by a splitter or its text: see `split_over_clients`."""
    made: Splitter = one("split", splitter) if isinstance(splitter, str) else splitter
    return split_over_clients(dataset, made, clients, seed, unseen, validation)
