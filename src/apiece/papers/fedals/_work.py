"""How the cells of FedALS's cards are run that are no plain runs."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from apiece.algebra.composition import algorithm
from apiece.papers.fedals._setup import READINGS, WORK
from apiece.pieces.first_gradients import FirstGradients
from apiece.pieces.scaffold import Scaffold
from apiece.reproduce.work import federated
from apiece.system.device import scalar


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
