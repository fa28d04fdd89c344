"""Where the parameters of a model lie in its vector, and in which order: convolution weights channels-last."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Entry(NamedTuple):
    """Where one parameter or buffer lies in its vector, and every name it goes by."""

    name: str
    aliases: tuple[str, ...]
    shape: torch.Size
    offset: int
    layer: int  # which group of layers it belongs to

    @property
    def size(self) -> int:
        return self.shape.numel()


def owner(name: str) -> str:
    """The layer that a parameter of this name belongs to; what makes a parametrized weight is of the weight's layer."""
    return name.partition(".parametrizations.")[0] if ".parametrizations." in name else name.rpartition(".")[0]


def views(vector: Tensor, entries: list[Entry], sizes: list[int] | None = None) -> list[Tensor]:
    """A vector's stretches in the shapes of what lies there; `sizes` are the entries' own, where they are at hand."""
    parts = vector.split_with_sizes(sizes or [e.size for e in entries]) if entries else ()
    return [_shaped(part, e.shape) for part, e in zip(parts, entries, strict=True)]


def rows(p: Tensor) -> Tensor:  # oneDNN and cuDNN want channels-last kernels: no copy at each step
    return p.permute(0, 2, 3, 1) if p.dim() == 4 else p


def _shaped(v: Tensor, s: torch.Size) -> Tensor:
    if len(s) == 1:
        return v  # a bias is in shape already: every step counts
    return v.view(s[0], s[2], s[3], s[1]).permute(0, 3, 1, 2) if len(s) == 4 else v.view(s)
