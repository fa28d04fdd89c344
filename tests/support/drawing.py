"""Models that draw as they train, of the digits [1, 8, 8]: dropout of every kind, stochastic depth, noise."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Deep(nn.Module):
    """A residual block whose branch is left out for some samples, as torchvision and as timm write it, with noise."""

    def __init__(self, size: int):
        super().__init__()
        self.branch = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x + self.branch(x).relu()
        noise = torch.empty([len(x), 1], dtype=x.dtype, device=x.device)
        noise = noise.bernoulli_(0.8)
        noise.div_(0.8)
        x = x + self.branch(x).relu() * noise
        kept = x.new_empty((len(x), 1)).bernoulli_(0.9)
        added = torch.empty_like(x)
        added.normal_(0, 0.1)  # what was made is filled, and what that gives is not looked at
        return x * kept + torch.randn_like(x) * 0.1 + added + torch.rand(x.shape[1], dtype=x.dtype) * 0.1


class Attentive(nn.Module):
    """The rows of an image as tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(x.view(len(x), 8, 8)).flatten(1))


class Recurrent(nn.Module):
    """The rows of an image, one after the other."""

    def __init__(self, cell: type[nn.RNNBase] = nn.LSTM) -> None:
        super().__init__()
        self.cell, self.out = cell(8, 8, num_layers=2, dropout=0.3, batch_first=True), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.cell(x.view(len(x), 8, 8))[0][:, -1])


def dense(*between: nn.Module) -> nn.Module:
    """A perceptron with these layers behind its hidden ones; its weights are the same whatever these are."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), *between, nn.Linear(16, 10))


def convolutional() -> nn.Module:
    last = (nn.MaxPool2d(2), nn.Flatten(), nn.AlphaDropout(0.1), nn.Linear(36, 10))
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout2d(0.3), *last)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "perceptron": lambda: dense(nn.Dropout(0.3)),
    "convolutional": convolutional,
    "attentive": Attentive,
    "deep": lambda: dense(Deep(16)),
    "recurrent": Recurrent,
}


def made(name: str) -> nn.Module:
    """The model of this name, the same each time."""
    torch.manual_seed(0)
    return MODELS[name]()
