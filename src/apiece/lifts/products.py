"""Convolutions as products of matrices: for all clients of a call one batched product, for which a GPU is fast.

By itself, vmap makes one convolution with a group for every client where kernels differ by client, and libraries have
no fast kernels for it. Here the images are laid out in patches of K = C kH kW numbers, and vmap batches the product

    out [O, B L] = kernels [O, K] @ patches [K, B L].

The patches have kH kW times the size of the images and are kept until the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from apiece.lifts.side_by_side import pair


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """`F.conv2d` of images [B, C, H, W] with kernels [O, C, kH, kW] as one product, in the type that autocast would
    give it; torch's own with groups, with padding by name, or without a batch.
    """
    if groups != 1 or isinstance(padding, str) or input.dim() != 4:
        return F.conv2d(input, weight, bias, stride, padding, dilation, groups)
    stride, padding, dilation = map(pair, (stride, padding, dilation))
    sizes = zip(input.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    shape = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes]
    kind = input.device.type
    if torch.is_autocast_enabled(kind):  # before the patches are made, of which there are many
        input = input.to(torch.get_autocast_dtype(kind))
    patches = _Patches.apply(input, tuple(weight.shape[2:]), stride, padding, dilation)
    out = (weight.flatten(1) @ patches).unflatten(1, (len(input), *shape)).transpose(0, 1)
    return out if bias is None else out + bias.to(out.dtype)[:, None, None]


class _Patches(Function):
    """[B, C, H, W] -> [C kH kW, B L], copied at once; `F.unfold` copies image by image on a GPU."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, window: Any, stride: Any, padding: Any, dilation: Any) -> Tensor:
        (high, wide), channels = padding, x.size(1)
        x = F.pad(x, (wide, wide, high, high))
        for axis, k, s, d in zip((2, 3), window, stride, dilation, strict=True):
            x = x.unfold(axis, d * (k - 1) + 1, s)[..., ::d]  # [B, C, h, w, kH, kW] in the end
        return x.permute(1, 4, 5, 0, 2, 3).reshape(channels * window[0] * window[1], -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        x, ctx.window, ctx.stride, ctx.padding, ctx.dilation = inputs
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple:
        grad = grads[0].unflatten(1, (ctx.shape[0], -1)).transpose(0, 1)  # [B, K, L]
        return F.fold(grad, ctx.shape[2:], ctx.window, ctx.dilation, ctx.padding, ctx.stride), None, None, None, None


WRITTEN = {F.conv2d: conv2d}
