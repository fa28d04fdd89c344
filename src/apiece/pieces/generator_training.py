"""The server's side of FedGen: it keeps, sends and trains the generator."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from torch import Tensor

from apiece.algebra.broadcast import FederationFacts
from apiece.algebra.draws import Draw, draw
from apiece.algebra.message import PerClient
from apiece.algebra.optim import AdamWTogether, OnServer, Optimizer
from apiece.errors import UserError
from apiece.pieces.feature_generator import Generator, Learnt, Network, Teachers, taught
from apiece.system.device import to_device
from apiece.vector.space import Space, seeded

ADAM = AdamWTogether(weight_decay=0.0)


class Classifier(NamedTuple):
    """A client's report of its classifier and its labels: see `Teachers`."""

    scores: PerClient
    counts: PerClient


@dataclass(frozen=True)
class GeneratorTraining:
    """The server trains a generator for `epochs` steps a round on the classifiers that clients report."""

    decay: float = 0.98
    batch: int = 32
    noise: int = 32
    hidden: int = 256
    epochs: int = 50
    lr: float = 3e-4
    weight_decay: float = 1e-2
    diversity: float = 1.0
    network: Any = field(default=None, repr=False, compare=False)  # `complete` sets this and the seed
    seed: int = field(default=0, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers = self.decay, self.epochs, self.lr, self.weight_decay, self.diversity
        if min(numbers) < 0 or min(self.noise, self.hidden) < 1 or self.batch < 2:
            raise UserError("fedgen needs noise and hidden of 1 or more, batch of 2 or more, the others of 0 or more.")

    def complete(self, space: Space, setting: FederationFacts | None, optimizer: Optimizer) -> Self:
        assert setting is not None, "a recipe is completed for a federation"
        head = [e.shape for e in space.parameters if len(e.shape) > 1][-1]
        if len(head) != 2:
            raise UserError("fedgen makes features for a linear classifier: end the model in one.")
        make = lambda: Network(self.noise, head[0], self.hidden, head[1])
        return replace(self, network=seeded(make, setting.seed, "fedgen", space), seed=setting.seed)

    def server_memory(self, theta: Tensor):
        weights = self.network.ravel()
        return Learnt(Generator(weights, self.network.ravel_buffers()), OnServer(ADAM, self.lr).init(weights))

    def tell(self, memory: Learnt):
        return memory.generator

    def learn(self, memory: Learnt, g: Tensor, report: Classifier, share: float):
        trainings = int(memory.moments.steps) // max(self.epochs, 1)
        adam, teachers = OnServer(ADAM, self.lr * self.decay**trainings), Teachers(report.scores.x, report.counts.x)
        drawn = self.drawn(trainings)
        return g, taught(self.network, memory, teachers, drawn, adam, self.weight_decay, self.diversity)

    def drawn(self, training: int) -> dict[str, Tensor]:
        """The server's draws for the generator's training number 0, 1, ...; each training has a stream of its own."""
        asked = uniform(self.batch, self.noise, name="noise"), uniform(self.batch, name="labels")
        drawn = draw(asked, self.seed, training, "", "FedGen, on the server", self.epochs, self.network.dtype)
        return to_device(drawn, self.network.device)


def uniform(*shape: int, name: str) -> Draw:
    """Uniform numbers on [0, 1) of this shape, for every step."""
    return Draw(name, shape, "uniform", "step")
