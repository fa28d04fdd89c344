"""fluke on the given problem: its own federated averaging, which waits between rounds.

python fluke_round.py FOLDER THREADS
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from fluke import DDict
from fluke.algorithms.fedavg import FedAVG
from fluke.data import FastDataLoader
from fluke.utils import FederationObserver
from problem import Conversation, Given, at, flat, read
from torch import nn


class Splitter:
    """The given clients' data, as fluke asks for it."""

    def __init__(self, given: Given):
        self.given = given

    def assign(self, clients: int, batch: int) -> Any:
        """((training data, test data) of every client, the server's test data)."""
        loading = {"num_labels": self.given.problem.classes, "batch_size": batch, "shuffle": False}
        train = [FastDataLoader(*self.given.client(number), **loading) for number in range(clients)]
        return (train, [None] * clients), None


class Wait(FederationObserver):
    """Each round begins on request, at the initial weights."""

    def __init__(self, given: Given):
        self.given, self.conversation = given, Conversation(fluke=version("fluke-fl"), torch=torch.__version__)
        self.model: Any = None

    def start_round(self, round: int, global_model: Any) -> None:
        """Wait before a round."""
        self.model = at(global_model, self.given.initial)
        self.conversation.wait()

    def end_round(self, round: int) -> None:
        """After it."""
        self.conversation.answer(lambda: flat(self.model.parameters()))


def main() -> None:
    """Run rounds forever."""
    given = read(Path(sys.argv[1]))
    problem = given.problem
    torch.set_num_threads(int(sys.argv[2]))
    client = DDict(
        batch_size=problem.batch,
        local_epochs=1,
        loss=nn.CrossEntropyLoss,
        optimizer=DDict(name="SGD", lr=problem.lr),
        scheduler=DDict(name="StepLR", step_size=1, gamma=1.0),
    )
    settings = DDict(model=given.module(), client=client, server=DDict(weighted=False))
    algorithm = FedAVG(problem.clients, Splitter(given), settings)
    algorithm.server.get_eligible_clients = lambda share: algorithm.clients[: problem.cohort]
    algorithm.set_callbacks(Wait(given))
    algorithm.run(10**6, problem.cohort / problem.clients)


if __name__ == "__main__":
    main()
