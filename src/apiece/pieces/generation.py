"""How FedCOG generates inputs: it learns the inputs themselves, or a small network and its noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from apiece.algebra.draws import Draw
from apiece.errors import UserError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Inputs:
    """The inputs themselves are learnt, starting from standard normal noise in the space of normalized samples."""

    def draws(self, samples: int) -> tuple[Draw, ...]:
        """The noise [samples, *sample]."""
        return (Draw("inputs", lambda sample: (samples, *sample)),)

    def begin(self, draws: dict[str, Tensor], sample: Shape) -> Tensor:
        """The learnt tensor [samples, *sample] before the first step."""
        return draws["inputs"]

    def inputs(self, learnt: Tensor, sample: Shape) -> Tensor:
        """The inputs [samples, *sample]."""
        return learnt


@dataclass(frozen=True)
class Network:
    """Inputs are a network's outputs on noise; its weights and the noise are learnt, anew in each round.

    FedCOG, appendix A.4.2 and its code: for images, a linear layer to `width` maps of a quarter of each side (8192
    numbers for 32 x 32), enlarged twice by 2, with three 3 x 3 convolutions; for samples of another shape, two
    linear layers. Our choice, for the paper is silent: the outputs of every layer are standardized over the
    generated set, the last ones too, as normalized samples are.
    """

    latent: int = 256
    width: int = 128

    def __post_init__(self) -> None:
        if min(self.latent, self.width) < 1:
            raise UserError(f"network(latent={self.latent}, width={self.width}) is no network: give 1 or more of both.")

    def draws(self, samples: int) -> tuple[Draw, ...]:
        """The noise [samples, latent] and the weights [P]."""
        return Draw("latent", (samples, self.latent)), Draw(
            "weights", lambda sample: (sum(map(math.prod, self._shapes(sample))),)
        )

    def begin(self, draws: dict[str, Tensor], sample: Shape) -> Tensor:
        """Weights of variance 2 / fan-in, then the noise: one vector [P + samples latent]."""
        shapes = self._shapes(sample)
        parts = draws["weights"].split([math.prod(shape) for shape in shapes])
        scaled = [part * math.sqrt(2 / math.prod(shape[1:])) for part, shape in zip(parts, shapes, strict=True)]
        return torch.cat([*scaled, draws["latent"].reshape(-1)])

    def inputs(self, learnt: Tensor, sample: Shape) -> Tensor:
        """The inputs [samples, *sample]."""
        shapes = self._shapes(sample)
        sizes = [math.prod(shape) for shape in shapes]
        *parts, noise = learnt.split([*sizes, len(learnt) - sum(sizes)])
        first, *rest = (part.view(shape) for part, shape in zip(parts, shapes, strict=True))
        x = noise.view(-1, self.latent) @ first.T
        if len(sample) != 3:
            return _standardized(F.leaky_relu(_standardized(x), 0.2) @ rest[0].T).view(-1, *sample)
        x = _standardized(x.view(-1, self.width, *_quarter(sample)))
        for weight, factor in zip(rest, (2, 4, 0), strict=True):
            if factor:
                x = F.interpolate(x, size=sample[1:] if factor == 4 else tuple(2 * side for side in _quarter(sample)))
            x = _standardized(F.conv2d(x, weight, padding=1))
            x = F.leaky_relu(x, 0.2) if factor else x
        return x

    def _shapes(self, sample: Shape) -> list[Shape]:
        wide, half = self.width, max(self.width // 2, 1)
        if len(sample) != 3:
            return [(wide, self.latent), (math.prod(sample), wide)]
        maps = wide * math.prod(_quarter(sample))
        return [(maps, self.latent), (wide, wide, 3, 3), (half, wide, 3, 3), (sample[0], half, 3, 3)]


def _quarter(sample: Shape) -> Shape:
    return tuple(-(-side // 4) for side in sample[1:])


def _standardized(x: Tensor) -> Tensor:
    """x with zero mean and unit variance in each channel, over samples and positions."""
    others = [axis for axis in range(x.dim()) if axis != 1]
    centered = x - x.mean(others, keepdim=True)
    return centered / (centered.square().mean(others, keepdim=True) + 1e-5).sqrt()
