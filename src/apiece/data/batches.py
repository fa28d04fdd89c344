"""Images of a batch on their way to a model: scaled, flipped and cropped by draws that were made before.

Nothing here holds a generator: `Augmentation.draw` receives one, and the rest are functions of tensors that also work
under `torch.vmap`. Images are [B, channels, H, W].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from apiece.errors import UserError


def channels_first(images: np.ndarray) -> Tensor:
    """Images [n, H, W] or [n, H, W, channels] as a tensor [n, channels, H, W] of the same type."""
    if images.ndim == 3:
        return torch.from_numpy(images)[:, None]
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def normalize(x: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """(x - mean) / std per channel; uint8 is scaled to [0, 1] first. Returns floats."""
    x = x / 255 if x.dtype == torch.uint8 else x
    center, scale = (torch.tensor(value, dtype=x.dtype, device=x.device).view(-1, 1, 1) for value in (mean, std))
    return (x - center) / scale


def moved(x: Tensor, flipped: Tensor, offsets: Tensor, padding: int) -> Tensor:
    """Mirror left and right the images where `flipped` [B] is true, pad all with zeros, then cut the old size at
    (row, column) = `offsets` [B, 2]; (padding, padding) is the middle. Each pixel is moved once, by its place in `x`.
    """
    images, channels, height, width = x.shape
    padded = F.pad(x, (padding,) * 4)
    high, wide = padded.shape[-2:]
    planes = torch.arange(images * channels, device=x.device).view(images, channels, 1, 1)
    rows = (offsets[:, :1] + torch.arange(height, device=x.device)).view(-1, 1, height, 1)
    columns = offsets[:, 1:] + torch.arange(width, device=x.device)
    columns = torch.where(flipped[:, None], wide - 1 - columns, columns).view(-1, 1, 1, width)
    places = (planes * high + rows) * wide + columns
    return padded.flatten().index_select(0, places.flatten()).view(x.shape)


class Draws(NamedTuple):
    """The random draws that augment B images: flipped [B], bool; offsets [B, 2], int64."""

    flipped: Tensor
    offsets: Tensor


@dataclass(frozen=True)
class Augmentation:
    """Mirror an image with probability `flip`, then with probability `crop` shift it by up to `padding` pixels.

    The defaults are the usual ones of CIFAR (FedALS, FedCOG); FL-Simulator, and so FedInit, has crop=0.5.
    """

    flip: float = 0.5
    padding: int = 4
    crop: float = 1.0

    def __post_init__(self) -> None:
        if not (0 <= self.flip <= 1 and 0 <= self.crop <= 1 and self.padding >= 0):
            raise UserError(f"{self}: flip and crop are probabilities, from 0 to 1, and padding is 0 pixels or more.")

    def draw(self, rng: np.random.Generator, count: int) -> Draws:
        """Draws for `count` images."""
        flipped = rng.random(count) < self.flip
        offsets = rng.integers(0, 2 * self.padding + 1, size=(count, 2))
        shifted = rng.random(count) < self.crop
        return Draws(torch.from_numpy(flipped), torch.from_numpy(np.where(shifted[:, None], offsets, self.padding)))

    def __call__(self, x: Tensor, draws: Draws) -> Tensor:
        """Augmented images, of the same shape and type."""
        return moved(x, draws.flipped, draws.offsets, self.padding)
