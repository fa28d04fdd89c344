"""What a compiler is given in place of some operations on images, which it makes slow code of as they are.

Of many clients' convolutions vmap makes one with groups, channels first; libraries have their fast kernels for images
and kernels that lie channels-last. The gradient of a pool is scattered by indices, a number at a time; where windows
tile the images it is written here without indices, as one formula on all numbers. Values stay what they were, the last
bits of convolutions apart.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

aten = torch.ops.aten
LARGEST = 9  # places of a window: every one is a term of the formula that is compiled


def lowered(graph: fx.GraphModule, inputs: tuple) -> fx.GraphModule:
    """The graph with these operations written otherwise, as it is for inputs of such shapes and strides."""
    written = {
        aten.convolution.default: _convolution,
        aten.convolution_backward.default: _convolution_backward,
        aten.max_pool2d_with_indices_backward.default: _max_pool_backward,
    }
    return make_fx(graph, decomposition_table=written)(*inputs)


def _channels_last(images: Tensor) -> Tensor:
    """[B, C, H, W] with the numbers of a place side by side; itself where they are."""
    like = torch.channels_last
    done = images.stride(1) == 1 and images.is_contiguous(memory_format=like)
    return images if done else images.clone(memory_format=like)


def _convolution(input: Tensor, weight: Tensor, bias: Tensor | None, *how: Any) -> Tensor:
    if input.dim() != 4:
        return NotImplemented
    given, relaid = (input, weight), (_channels_last(input), _channels_last(weight))
    return NotImplemented if _same(given, relaid) else aten.convolution.default(*relaid, bias, *how)


def _convolution_backward(grad: Tensor, input: Tensor, weight: Tensor, *how: Any) -> tuple:
    """Of what the gradients that are asked for depend on: that by the images not on these, that by kernels likewise."""
    if input.dim() != 4:
        return NotImplemented
    of_images, of_kernels, _ = how[-1]
    given = grad, input, weight
    relaid = (
        _channels_last(grad),
        _channels_last(input) if of_kernels else input,
        _channels_last(weight) if of_images else weight,
    )
    return NotImplemented if _same(given, relaid) else aten.convolution_backward.default(*relaid, *how)


def _same(given: tuple, relaid: tuple) -> bool:
    return all(one is other for one, other in zip(given, relaid, strict=True))


def _max_pool_backward(
    grad: Tensor, x: Tensor, kernel: list, stride: list, padding: list, dilation: list, ceil: bool, indices: Tensor
) -> Tensor:
    """Where windows tile the images: a window's gradient goes to the first of its places that is its largest number."""
    (high, wide), (rows, columns) = kernel, grad.shape[-2:]
    tiled = x.dim() == 4 and x.shape[-2:] == (rows * high, columns * wide)
    alone = list(stride or kernel) == list(kernel) and not any(padding)  # which leaves no room for dilation
    if not tiled or not alone or high * wide > LARGEST:
        return NotImplemented
    windows = x.permute(0, 2, 3, 1).unflatten(2, (columns, wide)).unflatten(1, (rows, high))  # [B, h, k, w, k, C]
    places = [windows[:, :, i, :, j] for i in range(high) for j in range(wide)]  # [B, h, w, C] each
    largest, grad = reduce(torch.maximum, places), grad.permute(0, 2, 3, 1)
    free, parts = torch.ones_like(grad, dtype=torch.bool), []
    for place in places:
        less = place < largest
        parts.append(torch.where(free & ~less, grad, 0.0))
        free = free & less
    tiles = [torch.stack(parts[i * wide : (i + 1) * wide], 3) for i in range(high)]
    return torch.stack(tiles, 2).flatten(3, 4).flatten(1, 2).permute(0, 3, 1, 2)
