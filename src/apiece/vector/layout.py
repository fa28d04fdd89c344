"""Where the parameters of a model lie in its vector, and in which order: convolution weights channels-last."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Entry(NamedTuple):
    """Where one parameter or buffer lies in its vector, and all its names."""

    name: str
    aliases: tuple[str, ...]
    shape: torch.Size
    offset: int
    layer: int  # the number of its group of layers

    @property
    def size(self) -> int:
        return self.shape.numel()


def owner(name: str) -> str:
    """The layer of a parameter with this name; the tensors behind a parametrized weight are in the weight's layer."""
    return name.partition(".parametrizations.")[0] if ".parametrizations." in name else name.rpartition(".")[0]


def views(vector: Tensor, entries: list[Entry], sizes: list[int] | None = None) -> list[Tensor]:
    """The parts of a vector in the shapes of its entries; `sizes` are the entries' sizes, if the caller has them."""
    parts = vector.split_with_sizes(sizes or [e.size for e in entries]) if entries else ()
    return [_shaped(part, e.shape) for part, e in zip(parts, entries, strict=True)]


def channels_last(p: Tensor) -> Tensor:  # oneDNN and cuDNN want channels-last kernels: no copy at each step
    return p.permute(0, 2, 3, 1) if p.dim() == 4 else p


def _shaped(v: Tensor, s: torch.Size) -> Tensor:
    if len(s) == 1:
        return v  # a bias has its shape already, and a view takes time
    return v.view(s[0], s[2], s[3], s[1]).permute(0, 3, 1, 2) if len(s) == 4 else v.view(s)


def by_layer(named: Iterable[tuple[str, Tensor]]) -> list[tuple[str, Tensor]]:
    """Layer by layer, as named; the tensors behind a parametrized weight stand in the weight's place: first."""
    named = list(named)
    first = {owner(name): place for place, (name, _) in reversed(list(enumerate(named)))}
    return sorted(named, key=lambda pair: (first[owner(pair[0])], ".parametrizations." not in pair[0]))


def layers_of(named: Sequence[tuple[str, Tensor]], starts: Any) -> dict[int, int]:
    """The number of each tensor's group of layers, by the tensor's id; of several names, the last one decides."""

    def begins(name: str, tensor: Tensor) -> bool:
        if starts is not None:
            return any(fnmatch.fnmatchcase(name, pattern) for pattern in starts)
        return tensor.dim() > 1 and not {"shortcut", "downsample", "original1"} & set(name.split("."))

    layer = -1
    last: dict[int, int] = {}
    for name, tensor in named:
        layer = max(layer + begins(name, tensor), 0)
        last[id(tensor)] = layer
    numbers = {layer: i for i, layer in enumerate(sorted(set(last.values())))}  # without groups that ties left empty
    return {key: numbers[layer] for key, layer in last.items()}


def layers_of_owners(
    named: Sequence[tuple[str, Tensor]], parameters: list[Entry], modules: Iterable[str]
) -> dict[int, int]:
    """The number of each buffer's group of layers, by its id: that of its owner's last parameter, or, if the owner has
    no parameters, as a BatchNorm may have none, that of the module before it. `modules` are all names, in their order.
    """
    last = {owner(name): e.layer for e in parameters for name in e.aliases}
    layer, layers = 0, dict[str, int]()
    for module in modules:
        layer = layers[module] = last.get(module, layer)
    return {id(tensor): layers.get(owner(name), 0) for name, tensor in reversed(named)}  # a first name is in `modules`


def entries_of(named: Sequence[tuple[str, Tensor]], layers: dict[int, int]) -> list[Entry]:
    """An entry for each unique tensor, in order, with all its names."""
    aliases: dict[int, list[str]] = {}
    tensors: dict[int, Tensor] = {}
    for name, tensor in named:
        aliases.setdefault(id(tensor), []).append(name)
        tensors[id(tensor)] = tensor
    offset = 0
    entries: list[Entry] = []
    for key, names in aliases.items():
        shape = tensors[key].shape
        entries.append(Entry(names[0], tuple(names), shape, offset, layers[key]))
        offset += shape.numel()
    return entries
