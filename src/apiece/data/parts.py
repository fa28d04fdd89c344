"""Whether the parts of a given federation fit each other, checked before training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from apiece.data import sound
from apiece.data.federation import Federation, MadeFederation, Numbered
from apiece.errors import UserError


def refuse_misfits(federation: Federation | MadeFederation) -> None:
    """Raise UserError where the pools, the clients' rows of them, their names or the unseen ones do not fit. Data that
    are made on demand are checked once they are made.
    """
    count = len(federation.names)
    if not isinstance(federation.names, Numbered):
        _refuse_names(federation.names)
    for client in federation.unseen:
        if not isinstance(client, Integral) or not 0 <= int(client) < count:
            raise UserError(f"unseen={client!r} is no client: give numbers from 0 to {count - 1}.")
    if isinstance(federation, MadeFederation):
        if federation.count != count:
            raise UserError(f"count={federation.count}, and {count} clients have names: give one name for each.")
        _length("test_pool", federation.test_pool)
        return
    for part, rows in (("train", federation.train), ("test", federation.test)):
        if not isinstance(rows, Sequence) or len(rows) != count:
            found = f"{len(rows)} tensors" if isinstance(rows, Sequence) else f"a {type(rows).__name__}"
            raise UserError(f"{part} is {found}, for {count} names: give one tensor of rows for each client.")
    _refuse_rows("train", federation.train, _length("pool", federation.pool), federation.names)
    _refuse_rows("test", federation.test, _length("test_pool", federation.test_pool), federation.names)
    _refuse_unlike(federation.pool, federation.test_pool)


def _refuse_names(names: Sequence[Any]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise UserError(f"the clients' names must be texts, and {name!r} is none: give str(name).")
    sound.refuse_unwritable("clients=", "the client", names)
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise UserError(f"{names.count(twice[0])} clients are named {twice[0]!r}: give each its own name.")


def _refuse_unlike(pool: Any, test_pool: Any) -> None:
    """Refuse test samples or targets that have other parts, types or axes than those to train on."""
    found = [[(leaf.dtype, leaf.dim()) for leaf in tree_leaves(tuple(part))] for part in (pool, test_pool)]
    if found[0] != found[1]:
        one, other = (", ".join(f"{dtype} of {axes} axes" for dtype, axes in part) for part in found)
        raise UserError(f"pool is {one}, and test_pool {other}: make them alike.")


def _length(name: str, pool: Any) -> int:
    """How many samples a pool has; UserError where it is no pair of samples and targets with one target for each."""
    if not isinstance(pool, (tuple, list)) or len(pool) != 2:
        raise UserError(f"{name} is a {type(pool).__name__}: give a pair (samples, targets) of tensors.")
    leaves = tree_leaves(tuple(pool))
    odd = next((leaf for leaf in leaves if not isinstance(leaf, Tensor) or not leaf.dim()), None)
    if odd is not None or not leaves:
        raise UserError(
            f"{name} holds a {type(odd).__name__}: give tensors with a row for each sample, torch.as_tensor(array)."
        )
    lengths = sorted({len(leaf) for leaf in leaves})
    if len(lengths) > 1:
        raise UserError(
            f"{name} has tensors of {' and '.join(map(str, lengths))} rows: give one target for each sample."
        )
    sound.finite_tensors(name, leaves)
    return lengths[0]


def _refuse_rows(part: str, rows: Sequence[Any], length: int, names: Sequence[str]) -> None:
    for name, own in zip(names, rows, strict=True):
        if not isinstance(own, Tensor) or own.dtype != torch.int64 or own.dim() != 1:
            found = f"{own.dtype} of shape {list(own.shape)}" if isinstance(own, Tensor) else f"a {type(own).__name__}"
            raise UserError(
                f"client {name!r}: its {part} rows are {found}: give a tensor of int64 [n] (mask.nonzero()[:, 0] of a "
                "mask)."
            )
        if len(own) and not 0 <= int(own.min()) <= int(own.max()) < length:
            raise UserError(
                f"client {name!r}: its {part} rows go from {int(own.min())} to {int(own.max())}, and the pool has "
                f"rows 0 to {length - 1}."
            )
