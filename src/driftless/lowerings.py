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


def _convolution(input: Tensor, weight: Tensor, *rest: Any) -> Any:
    return _relaid(aten.convolution.default, (input, weight), (True, True), rest)


def _convolution_backward(grad: Tensor, input: Tensor, weight: Tensor, *rest: Any) -> Any:
    """The gradient by the images does not read these, nor that by the kernels these."""
    of_images, of_kernels, _ = rest[-1]
    return _relaid(aten.convolution_backward.default, (grad, input, weight), (True, of_kernels, of_images), rest)


def _relaid(operation: Any, given: tuple[Tensor, ...], read: tuple[bool, ...], rest: tuple) -> Any:
    """The operation on what it reads of these channels-last; not another one where all lies so."""
    relaid = [_channels_last(t) if does else t for t, does in zip(given, read, strict=True)]
    if all(one is other for one, other in zip(given, relaid, strict=True)):
        return NotImplemented
    return operation(*relaid, *rest)


def _channels_last(images: Tensor) -> Tensor:
    """Images or kernels [B, C, H, W] with the numbers of a place side by side; itself where they are, or of another
    number of axes.
    """
    like = torch.channels_last
    done = images.dim() != 4 or (images.stride(1) == 1 and images.is_contiguous(memory_format=like))
    return images if done else images.clone(memory_format=like)


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
