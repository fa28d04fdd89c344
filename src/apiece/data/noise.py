"""Noise that makes clients differ in their pixels: the strength of red, green and blue by client, brightness by class.

FedInit trains with both and tests on clean images, but gives no formula; this is our reading. On pixels in [0, 1],
before normalization, channel c of an image of class y on client i becomes

    clip(x_c (1 + a_ic) + b_y, 0, 1),    a_ic ~ N(0, rgb^2),    b_y ~ N(0, brightness^2).

The brightness reveals the class, and would be a leak on test images: train with it only. Strength 0 is the clean image.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Noise(NamedTuple):
    """The noise of a split, drawn once: gains [N, channels] by client, offsets [C] by class."""

    gains: np.ndarray
    offsets: np.ndarray


def draw(rng: np.random.Generator, clients: int, channels: int, classes: int, rgb: float, brightness: float) -> Noise:
    """Gains a ~ N(0, rgb^2) and offsets b ~ N(0, brightness^2)."""
    return Noise(rgb * rng.standard_normal((clients, channels)), brightness * rng.standard_normal(classes))


def noisy(images: np.ndarray, labels: np.ndarray, gain: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """clip(x_c (1 + a_c) + b_y, 0, 1) for one client. images: [n, H, W] or [n, H, W, channels] -> a new array.

    uint8 images, which stand for x / 255, stay uint8: each level is looked up, so there is no float copy of the images.
    Float images are taken to lie in [0, 1].
    """
    result = np.empty_like(images)
    source, target = (array[..., None] if images.ndim == 3 else array for array in (images, result))
    assert len(images) == len(labels) and len(gain) == source.shape[-1]
    levels = np.arange(256)
    for y in np.unique(labels):
        rows = np.flatnonzero(labels == y)
        for channel, a in enumerate(gain):
            old = source[rows, ..., channel]
            if images.dtype == np.uint8:
                new = np.rint(np.clip(levels * (1 + a) + 255 * offsets[y], 0, 255)).astype(np.uint8)[old]
            else:
                new = np.clip(old * (1 + a) + offsets[y], 0, 1)
            target[rows, ..., channel] = new
    return result
