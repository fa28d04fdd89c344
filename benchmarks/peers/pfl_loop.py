"""pfl's own loop on a network and its users' samples, which stops before and after each round."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data import FederatedDataset
from pfl.data.dataset import Dataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

NEVER = 10**9


class Network(nn.Module):
    """A network with the loss that pfl asks it for."""

    def __init__(self, scores: nn.Module):
        super().__init__()
        self.scores = scores

    def loss(self, x: Tensor, y: Tensor, eval: bool = False) -> Tensor:
        """What pfl minimizes."""
        self.train(not eval)
        return cross_entropy(self.scores(x), y)

    def metrics(self, x: Tensor, y: Tensor, eval: bool = True) -> dict[str, Any]:
        """What pfl evaluates: nothing here."""
        return {}


class Wait(TrainingProcessCallback):
    """Calls one function before each round, and another after it."""

    def __init__(self, begin: Callable[[], object], end: Callable[[], object]):
        self.begin, self.end = begin, end

    def on_train_begin(self, *, model: Any) -> Metrics:
        """Before the first round."""
        self.begin()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
        """Between two rounds."""
        self.end()
        return False, self.on_train_begin(model=model)


def rounds(
    scores: nn.Module,
    users: Sequence[tuple[Tensor, Tensor]],
    batch: int,
    epochs: int,
    lr: float,
    begin: Callable[[], object],
    end: Callable[[], object],
) -> None:
    """Rounds of all users, without end: `begin` is called before each, and `end` after it."""
    network, order = Network(scores), itertools.cycle(range(len(users)))
    training = FederatedDataset(lambda user: Dataset(users[user], user_id=str(user)), lambda: next(order))
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(NEVER, NEVER, len(users), 0),
        backend=SimulatedBackend(training, training, [WeightByUser()]),
        model=PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), 1.0)),
        model_train_params=NNTrainHyperParams(batch, epochs, lr),
        callbacks=[Wait(begin, end)],
    )
