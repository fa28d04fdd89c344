"""The clients' data as the engine reads it: a pool of tensors and each client's rows of it, or data made on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from apiece.data import sound
from apiece.data.ahead import Ahead
from apiece.data.arrays import Dataset
from apiece.data.batches import channels_first, normalize
from apiece.data.samples import Samples
from apiece.data.split import Split
from apiece.errors import UserError, tried
from apiece.system.device import to_device, to_numpy

Tree = Any
MOST = 1 << 20  # labels from this number on are not counted


class Owners(Protocol):
    """The clients as owners of data, whether these lie in memory or are made on demand."""

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def participants(self) -> Sequence[int]: ...

    @property
    def test_pool(self) -> Tree: ...

    def size(self, client: int) -> int: ...

    def test_size(self, client: int) -> int: ...

    def samples(self, client: int) -> Samples: ...

    def expect(self, clients: Iterable[int]) -> None: ...


@dataclass(frozen=True, eq=False)
class Federation:
    """Clients' data in one pool of tensors: client i trains on `pool[train[i]]` and is tested on
    `test_pool[test[i]]`.

    Args:
        pool: all training samples: (inputs [n, ...], targets [n, ...]).
        test_pool: all test samples, likewise.
        train, test: for each client, the rows of these that are its own, int64.
        names: the clients' names, by which their random streams go.
        unseen: the numbers of clients that never train.

    >>> pool = torch.randn(6, 4), torch.tensor([0, 1, 0, 1, 2, 2])
    >>> rows = [torch.tensor([0, 1]), torch.tensor([2, 3, 4, 5])]
    >>> Federation(pool, pool, rows, rows, names=["ash", "box"])
    Federation(clients=2, unseen=0, train=6, test=6)
    """

    pool: Tree
    test_pool: Tree
    train: Sequence[Tensor]
    test: Sequence[Tensor]
    names: Sequence[str]
    unseen: tuple[int, ...] = ()

    def __repr__(self) -> str:
        samples, tests = (sum(map(len, each)) for each in (self.train, self.test))
        return f"Federation(clients={len(self.names)}, unseen={len(self.unseen)}, train={samples}, test={tests})"

    @property
    def participants(self) -> list[int]:
        return _but(self.unseen, range(len(self.names)))

    def on(self, device: torch.device | str) -> Federation:
        """The same clients, their data on this device."""
        places = {name: to_device(list(getattr(self, name)), device) for name in ("train", "test")}
        pools = {name: to_device(getattr(self, name), device) for name in ("pool", "test_pool")}
        return replace(self, **pools, **places)

    def size(self, client: int) -> int:
        """How many training samples the client has."""
        return len(self.train[client])

    def test_size(self, client: int) -> int:
        """How many test samples the client has."""
        return len(self.test[client])

    def samples(self, client: int) -> Samples:
        return Samples(self.pool, self.train[client], len(self.train[client]))

    def expect(self, clients: Iterable[int]) -> None:
        """Announces clients whose data are asked for soon; these data are in memory already."""

    def test_rows(self, client: int) -> Tensor:
        """The client's own rows of the test pool."""
        return self.test[client]

    def label_counts(self, client: int) -> list[int]:
        """How many of the client's samples each class has; an empty list where its labels are no classes."""
        samples = self.samples(client)
        if not samples.size:
            return []
        _, y = samples.all()
        classes = (
            isinstance(y, Tensor) and y.dim() == 1 and not y.is_floating_point() and 0 <= y.min() and y.max() < MOST
        )
        return np.bincount(to_numpy(y)).tolist() if classes else []


@dataclass(frozen=True, eq=False)
class MadeFederation:
    """Clients whose data are made on demand: `make(client) -> (x, y)` is a pure function of the client's number, which
    other threads may call.

    Args:
        make: gives a client's training data (x, y) by its number; a pure function, which other threads may
            call.
        count: how many clients there are.
        samples_each: how many training samples each has.
        test_pool: (x, y), on which every client is tested.
        unseen: the numbers of the clients that never train.
        names: of the clients; client-0000000, client-0000001, ... without them.
        device: where the data are put.
        classes: labels are held against 0 to classes - 1 as they are made; 0 leaves them unchecked. A run with the
            usual loss takes the number of its model's scores.

    Raises UserError where `make` fails, gives other samples than test_pool has, numbers that are not finite, or a label
    that is none of the classes.

    >>> import torch
    >>> def make(client):
    ...     x = torch.full((10, 3), float(client))
    ...     return x, torch.arange(10) % 2
    >>> clients = MadeFederation(make, count=1000, samples_each=10, test_pool=make(0))
    >>> clients.size(999)
    10
    """

    make: Callable[[int], Tree]
    count: int
    samples_each: int
    test_pool: Tree
    unseen: tuple[int, ...] = ()
    names: Sequence[str] = ()
    device: torch.device | str = "cpu"
    classes: int = 0

    def __post_init__(self) -> None:
        for name, number in (("count", self.count), ("samples_each", self.samples_each)):
            if not isinstance(number, Integral) or number < 1:
                raise UserError(f"{name}={number!r} of a MadeFederation must be a whole number of 1 or more.")
        if not self.names:
            object.__setattr__(self, "names", Numbered(self.count))

    def __repr__(self) -> str:
        return f"MadeFederation(clients={self.count}, unseen={len(self.unseen)}, samples_each={self.samples_each})"

    @cached_property
    def _ahead(self) -> Ahead:
        return Ahead(self.make)

    def on(self, device: torch.device | str) -> MadeFederation:
        """The same clients, their data on this device."""
        return replace(self, test_pool=to_device(self.test_pool, device), device=device)

    @cached_property
    def participants(self) -> Sequence[int]:
        return _but(self.unseen, range(self.count)) if self.unseen else range(self.count)

    def size(self, client: int) -> int:
        return self.samples_each

    def test_size(self, client: int) -> int:
        """0: all clients are measured on the common test set."""
        return 0

    def samples(self, client: int) -> Samples:
        with tried(f"make({client}) fails"):
            tree = self._ahead.take(client)
        self._refuse_other(client, tree)
        made = Samples(tree, torch.arange(self.samples_each), self.samples_each)
        return to_device(made, self.device)

    def _refuse_other(self, client: int, tree: Tree) -> None:
        """Raise UserError where a client's samples are too few, or other than those that all are tested on."""
        if not isinstance(tree, tuple | list) or len(tree) != 2:
            raise UserError(f"make({client}) gives a {type(tree).__name__}: let it give a pair (x, y) of tensors.")
        leaves, tests = tree_leaves(tuple(tree)), tree_leaves(tuple(self.test_pool))
        each = self.samples_each
        odd = [leaf for leaf in leaves if not isinstance(leaf, Tensor) or not leaf.dim() or len(leaf) < each]
        if odd:
            what = f"{list(odd[0].shape)}" if isinstance(odd[0], Tensor) else f"a {type(odd[0]).__name__}"
            raise UserError(f"make({client}) gives {what}: let it give tensors of samples_each={each} rows or more.")
        found, wanted = ([(leaf.dtype, list(leaf.shape[1:])) for leaf in part] for part in (leaves, tests))
        if tests and found != wanted:
            one, other = (", ".join(f"{dtype} of shape {shape}" for dtype, shape in part) for part in (found, wanted))
            raise UserError(f"make({client}) gives {one}, and test_pool is {other}: make them alike.")
        sound.finite_tensors(f"make({client})", leaves)
        if self.classes and ((tree[1] < 0) | (tree[1] >= self.classes)).any():
            low, high = int(tree[1].min()), int(tree[1].max())
            raise UserError(
                f"make({client}) gives labels from {low} to {high}, and the model scores the classes 0 to "
                f"{self.classes - 1}: let test_pool have a sample of every class, or give a model with more outputs."
            )

    def expect(self, clients: Iterable[int]) -> None:
        """Announces clients whose data are asked for soon; a thread makes these data meanwhile."""
        self._ahead.expect(clients)

    def test_rows(self, client: int) -> Tensor:
        return torch.zeros(0, dtype=torch.int64)

    def label_counts(self, client: int) -> list[int]:
        """An empty list, for the client's data would have to be made."""
        return []


def _but(strangers: Iterable[int], everyone: range) -> list[int]:
    without = set(strangers)
    return [client for client in everyone if client not in without]


class Numbered(Sequence):
    """The names client-0000000, client-0000001, ..., which are not stored."""

    def __init__(self, count: int):
        self._numbers = range(count)
        self.ascending = count <= 10**7  # whether the names sort as the numbers do

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        return f"client-{self._numbers[index]:07d}"


def tensors(dataset: Dataset, x: np.ndarray, dtype: torch.dtype = torch.float32) -> Tensor:
    """Samples as a model takes them: images [n, C, H, W] normalized; tokens, sequences and features as they are."""
    if dataset.text:
        return torch.from_numpy(x)
    if x.ndim < 3 or dataset.sequences:
        return torch.from_numpy(np.ascontiguousarray(x)).to(dtype)
    images = channels_first(sound.channels_last(f"{dataset.name}, samples", x))
    count, channels, *size = images.shape
    out = torch.empty(count, max(channels, len(dataset.mean or ())), *size, dtype=dtype)  # gray ones may become colored
    for i in range(0, len(images), 4096):  # scaled in parts, since integers take less memory
        part = images[i : i + 4096]
        out[i : i + 4096] = (
            normalize(part, dataset.mean, dataset.std) if dataset.mean and dataset.std else part.to(dtype)
        )
    return out


def federation(dataset: Dataset, split: Split, dtype: torch.dtype = torch.float32) -> Federation:
    """The clients of a split of a data set, as tensors."""
    read = lambda leaf: torch.from_numpy(leaf).to(dtype) if leaf.dtype.kind == "f" else torch.from_numpy(leaf)
    d, inputs = dataset, lambda x, tree: tensors(dataset, x, dtype) if tree is None else tree_map(read, tree)
    pool = inputs(d.x_train, d.inputs_train), tree_map(read, d.y_train if d.targets_train is None else d.targets_train)
    test = inputs(d.x_test, d.inputs_test), tree_map(read, d.y_test if d.targets_test is None else d.targets_test)
    rows = [torch.from_numpy(np.asarray(part)) for part in split.train]
    own = [torch.from_numpy(np.asarray(part)) for part in split.test]
    return Federation(pool, test, rows, own, list(split.names), tuple(split.unseen))
