"""Numbers that a module draws as it trains (dropout, noise): counter-based, by tensor operations alone.

A number is a formula of three things: a key, int64 [2], that names seed, client, round and local step; the place of its
draw among those of one forward pass; and its own place `number` in the drawn tensor:

    bits = mix(mix(number ^ key[0]) ^ key[1] ^ mix(place)),    0 <= bits < 2^32

`mix` is the hash [16 21f0aaad 15 735a2d97 15] of Wellons's hash-prospector (TheIronBorn, its issue 19). Whole numbers
stay below 2^63, so that masks have the same bits on every device, under vmap and compiled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

WORD = 0xFFFFFFFF
DIGITS = {torch.float64: 32, torch.float16: 11, torch.bfloat16: 8}  # bits of a fraction in each type; 24 in float32


def bits(key: Tensor, place: int, count: int) -> Tensor:
    """`count` whole numbers of 32 bits each, int64 [count]."""
    first, second = key.unbind()
    numbers = torch.arange(count, device=key.device)
    return _mix(_mix(numbers ^ first) ^ (second ^ _mix(place & WORD)))


def _mix(x: Any) -> Any:
    for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
        x = ((x ^ (x >> shift)) * factor) & WORD
    return x ^ (x >> 15)


class Draws:
    """The successive draws of one forward pass from the stream of `key`; `count` is their number so far."""

    def __init__(self, key: Tensor):
        self.key, self.count = key, 0

    def bits(self, shape: Sequence[int]) -> Tensor:
        """The next draw: whole numbers of 32 bits in this shape."""
        self.count += 1
        return bits(self.key, self.count, math.prod(shape)).reshape(tuple(shape))

    def chosen(self, shape: Sequence[int], p: float | Tensor) -> Tensor:
        """True with probability p, bool in this shape."""
        found = self.bits(shape)
        return found.double() * 2.0**-32 < p if isinstance(p, Tensor) else found < round(p * 2**32)

    def uniform(self, like: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Numbers on [low, high), in the shape and type of `like`."""
        digits = DIGITS.get(like.dtype, 24)
        return (self.bits(like.shape) >> (32 - digits)).to(like.dtype) * (2.0**-digits * (high - low)) + low

    def normal(self, like: Tensor, mean: Any = 0.0, std: Any = 1.0) -> Tensor:
        """Normal numbers in the shape and type of `like`, by Box and Muller's method."""
        wide = like.new_empty(like.shape, dtype=torch.promote_types(like.dtype, torch.float32))
        radius, angle = (-2 * torch.log1p(-self.uniform(wide))).sqrt(), 2 * math.pi * self.uniform(wide)
        return (radius * angle.cos() * std + mean).to(like.dtype)

    def bernoulli(self, like: Tensor, p: float | Tensor = 0.5) -> Tensor:
        """1 with probability p and else 0, in the shape and type of `like`."""
        return self.chosen(like.shape, p).to(like.dtype)
