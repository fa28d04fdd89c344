"""The vectorized lift with the images of many clients side by side, as the channels of one batch.

By itself, vmap makes one convolution with a group for every client, channels first, and one pool of a longer batch:
images change their layout between any two, and a pool's gradient is scattered by indices, one number at a time. Here
the images [B, C, H, W] of S clients stay one batch [B, S C, H, W] that lies channels-last, for which libraries have
fast kernels; a pool whose windows tile the images is a formula of the places in a window. Values stay the same, except
for the last bits of convolutions.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from apiece.lifts.lift import Rewritten

aten = torch.ops.aten
LARGEST = 9  # places in a window: each is a term of the formula


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """`F.conv2d` of images [B, C, H, W] with kernels [O, C / groups, kH, kW]; torch's own with padding by name, without
    a batch, or under autocast.
    """
    plain = isinstance(padding, str) or input.dim() != 4 or torch.is_autocast_enabled(input.device.type)
    of = F.conv2d if plain else _Convolution.apply
    return of(input, weight, bias, stride, padding, dilation, groups)


def max_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """`F.max_pool2d` of images [..., H, W]; where its windows tile them, the maximum over the places in a window."""
    high, wide = window = pair(kernel_size)
    tiled = input.shape[-2] % high == 0 and input.shape[-1] % wide == 0 and high * wide <= LARGEST
    alone = (pair(stride or window), pair(padding), pair(dilation)) == (window, (0, 0), (1, 1))
    if not tiled or not alone or return_indices:
        return F.max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    return _Pool.apply(input, window)


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """`F.relu`; images stay joined, for compilers would otherwise keep the gradient's input channels first."""
    return _Relu.apply(input) if input.dim() == 4 and not inplace else F.relu(input, inplace)


class SideBySide(Rewritten):
    """Vectorized, but operations on images are computed side by side; the rounding class."""

    written = {F.conv2d: conv2d, F.max_pool2d: max_pool2d, F.relu: relu}


def pair(of: Any) -> tuple[int, int]:
    """A setting for both axes of an image, given as one number or two."""
    return (of, of) if isinstance(of, int) else 2 * tuple(of) if len(of) == 1 else tuple(of)


class _Convolution(Function):
    @staticmethod
    def forward(x: Tensor, kernels: Tensor, bias: Tensor | None, *settings: Any) -> Tensor:
        return F.conv2d(x, kernels, bias, *settings)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        x, kernels, _, *ctx.settings = inputs
        ctx.save_for_backward(x, kernels)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple:
        asked = ctx.needs_input_grad[:3]
        found = iter(_Gradients.apply(*grads, *ctx.saved_tensors, asked, *ctx.settings))
        return *(next(found) if one else None for one in asked), None, None, None, None

    @staticmethod
    def vmap(info: Any, dims: tuple, x: Tensor, kernels: Tensor, bias: Tensor | None, *settings: Any) -> Any:
        clients, (stride, padding, dilation, groups) = info.batch_size, settings
        joined = None if bias is None else _first(bias, dims[2], clients).flatten()
        x, kernels = _joined_images(x, dims[0], clients), _joined_kernels(kernels, dims[1], clients)
        out = F.conv2d(x, kernels, joined, stride, padding, dilation, clients * groups)
        return out.unflatten(1, (clients, -1)), 1


class _Gradients(Function):
    """A convolution's gradients by images, kernels and biases, those of them that are asked for."""

    @staticmethod
    def forward(grad: Tensor, x: Tensor, kernels: Tensor, asked: tuple, *settings: Any) -> tuple[Tensor, ...]:
        stride, padding, dilation = map(pair, settings[:3])
        rest = stride, padding, dilation, False, (0, 0), settings[3], [*asked[:2], False]
        found = [one for one in aten.convolution_backward(grad, x, kernels, None, *rest) if one is not None]
        if asked[2]:  # a product is faster than a sum over images in libraries and compilers
            flat = grad.movedim(1, -1).flatten(0, 2)
            found.append((flat.new_ones(1, len(flat)) @ flat)[0])
        return tuple(found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        grad, x, kernels, ctx.asked, *ctx.settings = inputs
        ctx.save_for_backward(grad, x, kernels)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple:
        """Each gradient is linear in the incoming one, and in kernels or images: its own gradients are a convolution,
        or a convolution's gradients, with the new gradient in the place of images or kernels.
        """
        (grad, x, kernels), rest = ctx.saved_tensors, iter(grads)
        by_images, by_kernels, by_biases = (next(rest) if one else None for one in ctx.asked)
        of_grad, of_x, of_kernels = [], None, None
        if by_images is not None:
            of_grad.append(_Convolution.apply(by_images, kernels, None, *ctx.settings))
            (of_kernels,) = _Gradients.apply(grad, by_images, kernels, (False, True, False), *ctx.settings)
        if by_kernels is not None:
            of_grad.append(_Convolution.apply(x, by_kernels, None, *ctx.settings))
            (of_x,) = _Gradients.apply(grad, x, by_kernels, (True, False, False), *ctx.settings)
        if by_biases is not None:
            of_grad.append(by_biases[:, None, None].expand_as(grad))
        return sum(of_grad), of_x, of_kernels, None, None, None, None, None

    @staticmethod
    def vmap(info: Any, dims: tuple, grad: Tensor, x: Tensor, kernels: Tensor, asked: tuple, *settings: Any) -> Any:
        clients, (*rest, groups) = info.batch_size, settings
        grad, x = (_joined_images(t, dim, clients) for t, dim in ((grad, dims[0]), (x, dims[1])))
        kernels = _joined_kernels(kernels, dims[2], clients)
        found = _Gradients.forward(grad, x, kernels, asked, *rest, clients * groups)
        axes = tuple(axis for axis, one in zip((1, 0, 0), asked, strict=True) if one)  # in images, behind the batch
        return tuple(t.unflatten(axis, (clients, -1)) for t, axis in zip(found, axes, strict=True)), axes


class _Relu(Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.relu()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return torch.where(ctx.saved_tensors[0] > 0, grads[0], 0.0)

    @staticmethod
    def vmap(info: Any, dims: tuple, x: Tensor) -> Any:
        clients = info.batch_size
        return _joined_images(x, dims[0], clients).relu().unflatten(1, (clients, -1)), 1


class _Pool(Function):
    """The maximum of each window; its gradient goes to the first place that has it."""

    @staticmethod
    def forward(x: Tensor, window: tuple[int, int]) -> Tensor:
        return reduce(torch.maximum, _places(x, window))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        x, ctx.window = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (x, largest), (grad,), (high, wide) = ctx.saved_tensors, grads, ctx.window
        *places, _ = enumerate(_places(x, ctx.window))
        first = torch.full_like(largest, len(places))  # its number, in a type that compilers vectorize
        for number, place in reversed(places):
            first = torch.where(place < largest, first, float(number))
        numbers = torch.arange(high * wide, dtype=x.dtype, device=x.device).view(high, 1, wide)
        spread = lambda t: t[..., :, None, :, None]  # [..., h, w] -> [..., h, 1, w, 1]
        return torch.where(spread(first) == numbers, spread(grad), 0.0).flatten(-2).flatten(-3, -2), None

    @staticmethod
    def vmap(info: Any, dims: tuple, x: Tensor, window: tuple[int, int]) -> Any:
        return _Pool.apply(x.movedim(dims[0], 0), window), 0


def _places(x: Tensor, window: tuple[int, int]) -> list[Tensor]:
    """For each place in a window, the values that all windows have there: [..., H, W] -> [..., h, w] each."""
    high, wide = window
    return [x[..., i::high, j::wide] for i in range(high) for j in range(wide)]


def _first(t: Tensor, dim: int | None, clients: int) -> Tensor:
    """The tensor with the clients' axis first; a tensor that all clients share is repeated."""
    return t.expand(clients, *t.shape) if dim is None else t.movedim(dim, 0)


def _joined_images(t: Tensor, dim: int | None, clients: int) -> Tensor:
    """[S, B, C, H, W] -> [B, S C, H, W], channels-last."""
    return _channels_last(_first(t, dim, clients).permute(1, 3, 4, 0, 2).flatten(3).movedim(-1, 1))


def _joined_kernels(t: Tensor, dim: int | None, clients: int) -> Tensor:
    """[S, O, C, kH, kW] -> [S O, C, kH, kW], channels-last."""
    return _channels_last(_first(t, dim, clients).movedim(2, -1).flatten(0, 1).movedim(-1, 1))


def _channels_last(t: Tensor) -> Tensor:
    """The tensor in channels-last layout, copied if need be; one channel, whose layouts coincide, gets its strides."""
    like = torch.channels_last
    return t if t.stride(1) == 1 and t.is_contiguous(memory_format=like) else t.clone(memory_format=like)
