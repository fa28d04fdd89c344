"""The layout of a client's row, and its bytes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from apiece.errors import UserError
from apiece.storage.trees import numbered
from apiece.system.device import to_numpy

Row = dict[str, Tensor]


class StoreError(UserError):
    """Rows that cannot be trusted or do not belong here: which rows, in which file, and what to do."""


class Field(NamedTuple):
    """One tensor of a row."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class RowFormat:
    """The tensors of one row, in order: `RowFormat([("model", (9,), torch.float32), ("steps", (), torch.int64)])`."""

    fields: Sequence[tuple[str, Sequence[int], torch.dtype]]

    def __post_init__(self) -> None:
        fields = tuple(Field(name, tuple(shape), dtype) for name, shape, dtype in self.fields)
        assert len({field.name for field in fields}) == len(fields), "two fields of a row have one name"
        object.__setattr__(self, "fields", fields)

    @classmethod
    def of(cls, row: Mapping[str, Tensor]) -> RowFormat:
        """The layout of this row."""
        return cls([(name, tensor.shape, tensor.dtype) for name, tensor in row.items()])

    @cached_property
    def size(self) -> int:
        """The size of a row in bytes."""
        return sum(self._sizes)

    @cached_property
    def _sizes(self) -> list[int]:
        return [math.prod(shape) * dtype.itemsize for _, shape, dtype in self.fields]

    @property
    def hash(self) -> str:
        """A hash of the layout, the same whether the state of pieces is named by number or by name."""
        fields = zip(numbered(field[0] for field in self.fields), self.fields, strict=True)
        return hashlib.sha256(str(RowFormat([(name, *field[1:]) for name, field in fields])).encode()).hexdigest()

    def pack(self, row: Mapping[str, Tensor]) -> bytes:
        """The row's bytes, field after field; `StoreError` for a row of another layout."""
        if len(row) != len(self.fields) or any(
            name not in row or row[name].shape != shape or row[name].dtype != dtype
            for name, shape, dtype in self.fields
        ):
            raise StoreError(
                f"a row has the fields {RowFormat.of(row)}, but the store holds {self}; give exactly these."
            )
        return b"".join(_bytes(row[name]).data for name, _, _ in self.fields)

    def unpack(self, data: bytes) -> Row:
        """A fresh row of these bytes."""
        row, whole, start = {}, np.frombuffer(data, np.uint8), 0
        for (name, shape, dtype), size in zip(self.fields, self._sizes, strict=True):
            field = torch.empty(size, dtype=torch.uint8)
            to_numpy(field)[:] = whole[start : start + size]
            row[name], start = field.view(dtype).view(shape), start + size
        return row

    def __str__(self) -> str:
        return ", ".join(
            f"{name} {list(shape)} {str(dtype).removeprefix('torch.')}" for name, shape, dtype in self.fields
        )


def _bytes(tensor: Tensor) -> np.ndarray:
    """The tensor's memory as bytes, without a copy if it is contiguous."""
    return to_numpy(tensor.contiguous().reshape(-1).view(torch.uint8))
