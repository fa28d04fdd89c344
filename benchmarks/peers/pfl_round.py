"""Apple's pfl on the given problem, its own loop, which waits between rounds.

python pfl_round.py FOLDER THREADS
"""

from __future__ import annotations

import itertools
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
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
from problem import Conversation, Given, at, flat, read
from torch import Tensor, nn

NEVER = 10**9


class Network(nn.Sequential):
    """The given network on images whose channels come last, as in pfl's benchmark."""

    def forward(self, x: Tensor) -> Tensor:
        """The scores of a batch [B, H, W, C]."""
        return super().forward(x.permute(0, 3, 1, 2))

    def loss(self, x: Tensor, y: Tensor, eval: bool = False) -> Tensor:
        """What pfl minimizes."""
        self.train(not eval)
        return F.cross_entropy(self(x), y)

    def metrics(self, x: Tensor, y: Tensor, eval: bool = True) -> dict[str, Any]:
        """What pfl evaluates: nothing here."""
        return {}


class Wait(TrainingProcessCallback):
    """After each round send an answer; before the next wait for a request and set the initial weights again."""

    def __init__(self, given: Given, network: Network):
        self.given, self.network = given, network
        self.conversation = Conversation(pfl=version("pfl"), torch=torch.__version__)

    def on_train_begin(self, *, model: Any) -> Metrics:
        """Wait before the first round."""
        at(self.network, self.given.initial)
        self.conversation.wait()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
        """Answer and wait between two rounds."""
        self.conversation.answer(lambda: flat(self.network.parameters()))
        return False, self.on_train_begin(model=model)


def main() -> None:
    """Run rounds forever."""
    given = read(Path(sys.argv[1]))
    problem = given.problem
    torch.set_num_threads(int(sys.argv[2]))
    users = {}
    for number in range(problem.clients):
        x, y = given.client(number)
        users[number] = (x.permute(0, 2, 3, 1).contiguous(), y)
    network = Network(*given.module())
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), 1.0))
    order = itertools.cycle(range(problem.cohort))
    training = FederatedDataset(lambda user: Dataset(users[user], user_id=str(user)), lambda: next(order))
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(NEVER, NEVER, problem.cohort, 0),
        backend=SimulatedBackend(training, training, [WeightByUser()]),
        model=model,
        model_train_params=NNTrainHyperParams(problem.batch, 1, problem.lr),
        callbacks=[Wait(given, network)],
    )


if __name__ == "__main__":
    main()
