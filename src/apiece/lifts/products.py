"""The vectorized lift with convolutions as products of matrices: one batched product for all clients of a call.

By itself, vmap makes one convolution with a group for every client where kernels differ by client, and libraries have
no fast kernels for it. Here the images are laid out in patches of K = C kH kW numbers, and vmap batches the product

    out [O, B L] = kernels [O, K] @ patches [K, B L].

The patches have kH kW times the size of the images and are kept until the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from apiece.lifts.lift import Rewritten
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
    patches = F.unfold(input, weight.shape[2:], dilation, padding, stride)  # [B, K, L]
    out = weight.flatten(1) @ patches.transpose(0, 1).flatten(1)
    out = out.unflatten(1, (len(input), *shape)).transpose(0, 1)
    return out if bias is None else out + bias.to(out.dtype)[:, None, None]


class Products(Rewritten):
    """Vectorized, but convolutions of images are products; the rounding class."""

    written = {F.conv2d: conv2d}
