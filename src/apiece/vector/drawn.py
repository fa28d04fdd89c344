"""Torch's functions that draw, as formulas of `Draws`: dropout, attention, recurrent cells, noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from apiece.vector.draws import Draws

Function = Callable[..., Any]  # a function of torch, or the same with `Draws` as its first argument


def _elements(x: Tensor) -> Sequence[int]:
    return x.shape


def _channels(x: Tensor) -> Sequence[int]:
    return *x.shape[:2], *[1] * (x.dim() - 2)


def _to_zero(input: Tensor, kept: Tensor, p: float) -> Tensor:
    """Dropped numbers become 0, and the mean stays."""
    return input * (kept * (1 / (1 - p) if p < 1 else 0.0))


def _to_least(input: Tensor, kept: Tensor, p: float) -> Tensor:
    """Dropped numbers become SELU's least value; mean and variance stay (Klambauer et al. 2017)."""
    least = -1.7580993408473766
    scale = ((1 - p) * (1 + p * least**2)) ** -0.5 if p < 1 else 0.0
    return input * (kept * scale) + (1 - kept - p) * (least * scale)


def _dropout(shape: Function, dropped: Function) -> Function:
    """`torch.dropout` and its like, with a mask of this shape; p = 0 draws nothing."""

    def dropout(draws: Draws, input: Tensor, p: float, train: bool) -> Tensor:
        if not train or p == 0:
            return input
        return dropped(input, draws.bernoulli(input.new_empty(shape(input)), 1 - p), p)

    return dropout


_drop = _dropout(_elements, _to_zero)


def _attention(
    draws: Draws,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention with dropout of its weights, which are its outputs for the identity, with probability dropout_p."""
    attend: Any = partial(F.scaled_dot_product_attention, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)
    if dropout_p == 0:
        return attend(query, key, value, attn_mask)
    keys = key.shape[-2]
    identity = torch.eye(keys, dtype=value.dtype, device=value.device).expand(*key.shape[:-2], keys, keys)
    weights = _drop(draws, attend(query, key, identity, attn_mask), dropout_p, True)
    return weights @ (value.repeat_interleave(query.shape[-3] // value.shape[-3], -3) if enable_gqa else value)


def _recurrent(cell: Function) -> Function:
    """`torch.lstm` and its like, layer by layer, with dropout between layers; torch's own for packed sequences."""

    def run(draws: Draws, x: Tensor, state: Any, weights: Any, *rest: Any) -> Any:
        biases, layers, p, train, *form = rest
        if not isinstance(biases, bool) or layers == 1 or not train or p == 0:
            return cell(x, state, weights, *rest)
        several, each, ends = isinstance(state, tuple | list), len(weights) // layers, list[Any]()
        for layer, begin in enumerate(zip(*(s.chunk(layers) for s in (state if several else [state])), strict=True)):
            mine = weights[each * layer : each * (layer + 1)]
            x = _drop(draws, x, p, layer > 0)
            x, *end = cell(x, begin if several else begin[0], mine, biases, 1, 0.0, True, *form)
            ends.append(end)
        return x, *map(torch.cat, zip(*ends, strict=True))

    return run


def _own(make: Function) -> Function:
    """A tensor of each client's own, which draws may fill, where many clients share one call of vmap."""

    def made(draws: Draws, *args: Any, **kwargs: Any) -> Tensor:
        new = make(*args, **kwargs)
        return new + (draws.key[0] * 0).to(new.dtype) if new.is_floating_point() else new

    return made


def _new(empty: Function, draw: Function) -> Function:
    def drawn(draws: Draws, *args: Any, **kwargs: Any) -> Tensor:
        return draw(draws, empty(*args, **kwargs))

    return drawn


def _into(draw: Function) -> Function:
    def filled(draws: Draws, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        new = draw(draws, x, *args, **kwargs)
        return x if new is x else x.copy_(new)

    return filled


def _bernoulli(draws: Draws, input: Tensor, p: float | None = None) -> Tensor:
    return draws.bernoulli(input, input if p is None else p)


def _normal(draws: Draws, mean: Any, std: Any = 1.0, size: Any = None, **options: Any) -> Tensor:
    return draws.normal(mean + std if size is None else torch.empty(size, **options), mean, std)


_DROPOUTS: dict[str, Function] = {
    "dropout": _drop,
    "feature_dropout": _dropout(_channels, _to_zero),
    "alpha_dropout": _dropout(_elements, _to_least),
    "feature_alpha_dropout": _dropout(_channels, _to_least),
}
WRITTEN: dict[Function, Any] = {
    **{getattr(torch, name): drop for name, drop in _DROPOUTS.items()},
    **{getattr(torch, f"{name}_"): _into(drop) for name, drop in _DROPOUTS.items()},
    **{cell: _recurrent(cell) for cell in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)},
    **{make: _own(make) for make in (torch.empty, torch.empty_like, torch.zeros, torch.zeros_like)},
    **{make: _own(make) for make in (Tensor.new_empty, Tensor.new_zeros)},
    F.scaled_dot_product_attention: _attention,
    torch.rand: _new(torch.empty, Draws.uniform),
    torch.rand_like: _new(torch.empty_like, Draws.uniform),
    torch.randn: _new(torch.empty, Draws.normal),
    torch.randn_like: _new(torch.empty_like, Draws.normal),
    torch.normal: _normal,
    torch.bernoulli: _bernoulli,
    Tensor.bernoulli: _bernoulli,
    Tensor.bernoulli_: _into(Draws.bernoulli),
    Tensor.uniform_: _into(Draws.uniform),
    Tensor.normal_: _into(Draws.normal),
}


def _never(*_: Any) -> bool:
    return False


_AS_IT_IS = {f"has_torch_function{kind}": _never for kind in ("", "_unary", "_variadic")}
_DRAWN_INSIDE = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout)
OPENED: dict[Function, Any] = {  # functions written in Python: their own code runs in the mode
    function: FunctionType(
        function.__code__, F.__dict__ | _AS_IT_IS, function.__name__, function.__defaults__, function.__closure__
    )
    for function in (*_DRAWN_INSIDE, F.multi_head_attention_forward)
}
