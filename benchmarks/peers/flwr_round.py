"""Flower's simulation on the given problem, as its guide to PyTorch writes an app: one client per core, with ray.

python flwr_round.py FOLDER CORES
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import Grid, ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402
from problem import TRAINING, Conversation, Stopwatch, read  # noqa: E402

FOLDER, CORES = Path(sys.argv[1]), int(sys.argv[2])
NEVER = 10**9


client_app, server_app = ClientApp(), ServerApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """One client's local training."""
    torch.set_num_threads(1)
    told = message.content["config"]
    work, watch = read(Path(told["folder"])), Stopwatch()
    x, y = work.client(told["client"])
    with watch.on(*TRAINING if told["instrumented"] else ()):
        model = work.module()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=work.problem.lr)
        for features, labels in zip(x.split(work.problem.batch), y.split(work.problem.batch)):
            optimizer.zero_grad()
            F.cross_entropy(model(features), labels).backward()
            optimizer.step()
    measured = {"compute": float(sum(watch.seconds)), "steps": watch.steps()}
    metrics = MetricRecord({"num-examples": len(x)} | measured)
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


class Averaging(FedAvg):
    """Federated averaging that begins each round at the initial weights and tells each node which client it is."""

    def __init__(self, initial: ArrayRecord, cohort: int, clients: int):
        share = {"fraction_train": cohort / clients, "fraction_evaluate": 0.0}
        super().__init__(**share, min_train_nodes=cohort, min_available_nodes=clients)
        self.initial, self.instrumented, self.sums = initial, False, {"compute": 0.0, "steps": 0}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """The messages of a round."""
        messages = list(super().configure_train(server_round, self.initial, config, grid))
        for client, message in enumerate(messages):
            told = {"client": client, "folder": str(FOLDER), "instrumented": self.instrumented}
            message.content = RecordDict({"arrays": message.content["arrays"], "config": ConfigRecord(told)})
        return messages

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        """The mean of the replies, and their measurements."""
        replies = list(replies)
        self.sums = {key: sum(reply.content["metrics"][key] for reply in replies) for key in self.sums}
        return super().aggregate_train(server_round, replies)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Rounds forever: Flower calls `between` before the first one and after each."""
    work, conversation = read(FOLDER), CONVERSATION
    initial = ArrayRecord(work.module().state_dict())
    strategy = Averaging(initial, work.problem.cohort, work.problem.clients)

    def between(server_round: int, arrays: ArrayRecord) -> None:
        if server_round:
            flat = lambda: torch.cat([part.reshape(-1) for part in arrays.to_torch_state_dict().values()])
            conversation.answer(flat, **strategy.sums)
        strategy.instrumented = conversation.wait()["instrumented"]

    strategy.start(grid=grid, initial_arrays=initial, num_rounds=NEVER, timeout=NEVER, evaluate_fn=between)


if __name__ == "__main__":
    CONVERSATION = Conversation(flwr=version("flwr"), ray=version("ray"), torch=torch.__version__)
    cores = {"init_args": {"num_cpus": CORES, "include_dashboard": False}, "client_resources": {"num_cpus": 1}}
    run_simulation(server_app, client_app, read(FOLDER).problem.clients, backend_config=cores)
