"""Modules of layers that a multilayer perceptron does not have, and data for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from support.helpers import clusters, federation

CONVOLUTIONS: list[dict[str, Any]] = [
    {}, {"stride": 2}, {"stride": (2, 1), "padding": 1}, {"padding": (2, 1), "dilation": 2}, {"padding": "valid"},
    {"groups": 2}, {"stride": [2, 2], "padding": [1, 1]},
]  # fmt: skip


class Normed(nn.Module):
    """Convolution, BatchNorm, tanh, linear."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.conv, self.norm, self.head = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Linear(12, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.norm(self.conv(x))).flatten(1))


def images():
    return clusters((12, 6, 9, 5, 8), (2, 4, 4))


def skewed(sizes=(30, 24, 18), shape=(6,), classes=3, seed=0):
    """Client i has class i alone, at a place of its own."""
    rng = np.random.Generator(np.random.Philox(seed))
    middles = 2 * rng.normal(size=(classes, *shape))
    x = [rng.normal(size=(n, *shape)) + middles[i] for i, n in enumerate(sizes)]
    return federation(x, [np.full(n, i) for i, n in enumerate(sizes)])


class Convolutional(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body, self.last = nn.Conv2d(channels, 4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.body(x)).mean((2, 3)))
