"""The networks of PeFLL and pFedHN: a hypernetwork writes models from descriptors, an embedding describes samples."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from apiece.errors import UserError
from apiece.networks import models

WIDTH = 100  # of hidden layers
SMALLEST = 8  # the side of images from which embedding=auto is convolutional


class Hypernetwork(nn.Module):
    """Linear(E, width), `hidden` times ReLU and Linear(width, width), a Linear for each tensor: [E] -> [D]."""

    def __init__(self, descriptor: int, sizes: list[int], hidden: int, width: int = WIDTH):
        super().__init__()
        layers: list[nn.Module] = [nn.Linear(descriptor, width)]
        for _ in range(hidden):
            layers += [nn.ReLU(), nn.Linear(width, width)]
        self.trunk = nn.Sequential(*layers)
        self.heads = nn.ModuleList(nn.Linear(width, size) for size in sizes)

    def forward(self, v: Tensor) -> Tensor:
        z = self.trunk(v)
        return torch.cat([head(z) for head in self.heads], -1)


def embedding(kind: str, shape: tuple[int, ...], classes: int, descriptor: int) -> nn.Module:
    """phi: `linear` and `mlp` (one hidden layer) take the one-hot label alone, `cnn` image and label in channels."""
    if kind == "linear":
        return nn.Linear(classes, descriptor)
    if kind == "mlp":
        return nn.Sequential(nn.Linear(classes, WIDTH), nn.ReLU(), nn.Linear(WIDTH, descriptor))
    if len(shape) != 3:
        raise UserError(f"embedding=cnn is for images, and samples have the shape {list(shape)}: take embedding=mlp.")
    network = models.lenet if min(shape[1:]) >= 16 else models.cnn
    return network((shape[0] + classes, *shape[1:]), descriptor)
