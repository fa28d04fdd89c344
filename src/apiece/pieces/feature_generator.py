"""FedGen's generator: a small network makes features from noise and a label, and learns from clients' classifiers."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apiece.algebra.optim import Moments
from apiece.engine.stepping import Loop


class Network(nn.Module):
    """(noise [B, E], labels [B]) -> features [B, F]: a hidden layer with BatchNorm and ReLU, and a linear layer."""

    def __init__(self, noise: int, classes: int, hidden: int, features: int):
        super().__init__()
        self.classes = classes
        self.first, self.norm = nn.Linear(noise + classes, hidden, bias=False), nn.BatchNorm1d(hidden)
        self.last = nn.Linear(hidden, features)

    def forward(self, drawn: tuple[Tensor, Tensor]) -> Tensor:
        noise, y = drawn
        one_hot = (y[:, None] == torch.arange(self.classes, device=y.device)).to(noise.dtype)
        return self.last(F.relu(self.norm(self.first(torch.cat([noise, one_hot], 1)))))


class Generator(NamedTuple):
    """A network's parameters [P], and the statistics by which it normalizes in evaluation mode."""

    weights: Tensor
    statistics: Tensor


class Learnt(NamedTuple):
    """The generator and the moments of Adam."""

    generator: Generator
    moments: Moments


class Teachers(NamedTuple):
    """The affine classifiers of S clients, as scores at the origin and at every unit vector, and the clients' label
    counts.
    """

    scores: Tensor  # [S, F + 1, C]
    counts: Tensor  # [S, C]

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        """mean_y( sum_k (n_ky / sum_i n_iy) CE(h_k(z), y) ) for features z [B, F]."""
        scores = z @ (self.scores[:, 1:] - self.scores[:, :1]) + self.scores[:, :1]
        trust = (self.counts / self.counts.sum(0).clamp(min=1))[:, y]
        return (trust * torch.stack([F.cross_entropy(s, y, reduction="none") for s in scores])).sum(0).mean()

    def labels(self, u: Tensor) -> Tensor:
        """Labels [B] from u [B], uniform on [0, 1): each class that some client has is equally likely."""
        there = self.counts.sum(0) > 0
        return torch.argsort(~there, stable=True)[(u * there.sum()).to(torch.int64)]


def taught(
    network: Any, learnt: Learnt, teachers: Teachers, drawn: dict[str, Tensor], adam: Any, decay: float, apart: float
) -> Learnt:
    """The generator after K steps of Adam, on noise [K, B, E] and labels [K, B]; `apart` weighs `alikeness`."""
    for noise, u in zip(drawn["noise"], drawn["labels"], strict=True):
        (weights, statistics), y = learnt.generator, teachers.labels(u)

        def badness(at: Tensor, noise: Any = noise, y: Any = y, old: Any = statistics) -> tuple[Tensor, Tensor]:
            z, moved = network.training_outputs(at, (noise, y), old)
            return teachers.loss(z, y) + apart * alikeness(noise, z), moved.detach()

        gradient, _, moved = Loop().differentiate(badness, weights)
        weights, moments = adam.step(gradient + decay * weights, weights, learnt.moments)
        learnt = Learnt(Generator(weights, moved), moments)
    return learnt


def alikeness(noise: Tensor, z: Tensor) -> Tensor:
    """exp(-mean |e_i - e_j|^2 |z_i - z_j|_1) over all pairs of a batch, where a norm is a mean over entries."""
    far = (noise[:, None] - noise).square().mean(-1)
    return (-(far * (z[:, None] - z).abs().mean(-1)).mean()).exp()
