"""How the cells of FedALS's cards are run that are no plain runs, and what is read off them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from apiece.algebra.composition import algorithm
from apiece.networks.models import resnet20
from apiece.papers.fedals._setup import READINGS, WORK
from apiece.pieces.first_gradients import FirstGradients
from apiece.pieces.scaffold import Scaffold
from apiece.reproduce.work import federated, sizes_of_layers
from apiece.system.device import scalar
from apiece.vector.space import Space


@dataclass(frozen=True)
class OfTheCode(Scaffold):
    """x <- x - lr (c_i - c) / length after every step; c_i stays the first gradient, and c the mean of these.

    What the authors' code computes under SCAFFOLD's name: the sign is the other one, and nothing is learned after the
    first synchronization. The correction passes by the momentum there. Here (1 - momentum) of it is added to every
    gradient, of which the momentum makes the whole.
    """

    momentum: float = 0.9
    length: int = 5

    def correct(self, view):
        against = (1 - self.momentum) / self.length * (view.client.variate - view.server.variate)
        return (), lambda scratch, g, theta, batch: (scratch, g + against)

    def _variate(self, view):
        return torch.where(scalar(view.round, view.sent) == 0, view.gradient, view.client.variate)


def of_the_code(settings, folder):
    """A run; with the setting `code`, of the code's SCAFFOLD with these values, whose first round moves no model."""
    own = dict(settings)
    if "code" not in own:
        return WORK(own, folder)
    own["algorithm"] = algorithm(OfTheCode(**own.pop("code")), FirstGradients(), name="scaffold(of the code)")
    run = federated(own, folder)
    return {name: value for name, read in READINGS.items() if (value := read(run)) is not None}


def distances(run):
    """[[round, ...], [of one layer at each round, ...], ...]: the mean squared distance of one parameter of each layer
    from the clients' mean, layers in the model's order.
    """
    sizes = sizes_of_layers(run)
    rounds = [metrics["round"] for metrics in run.metrics if "consensus" in metrics]
    every = [metrics["consensus"] for metrics in run.metrics if "consensus" in metrics]
    return [rounds, *([one[layer] / sizes[layer] for one in every] for layer in every[0])]


def half(number):
    """The mean over the rounds and over the first half (0) or the second half (1) of the layers."""
    return lambda run: _half(distances(run), number)


def _half(of, number, leave=None):
    return float(np.mean(np.array_split(of[1:], 2)[number][:leave]))


def without_last(make):
    """The mean over the rounds and over the second half of the layers without the last, of a line's distances."""
    return lambda line: _half(make(line), 1, -1)


@cache
def _sizes(channels):
    """How many parameters each layer of ResNet-20 has, in the model's order."""
    return Space(resnet20((channels, 32, 32), 10)).layer_index().bincount().tolist()


def whole(line):
    """The distances of a line whose cell has those of a parameter, as `distances` has them."""
    rounds, *layers = line.values["distances"]
    sizes = _sizes(3 if line.settings["data"] == "cifar10" else 1)
    return [rounds, *([size * one for one in layer] for size, layer in zip(sizes, layers, strict=True))]


DERIVED = {
    "late_but_last": without_last(lambda line: line.values["distances"]),
    "whole_distances": whole,
    "whole_early": lambda line: _half(whole(line), 0),
    "whole_late": lambda line: _half(whole(line), 1),
    "whole_late_but_last": without_last(whole),
}
