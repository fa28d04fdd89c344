"""What a run gives back: metrics by round, and every model."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from apiece.config.assemble import Experiment
from apiece.engine.clients import Clients
from apiece.engine.predicting import predicting
from apiece.engine.state import Server
from apiece.engine.stepping import Loop
from apiece.errors import UserError
from apiece.measure.global_average import global_model
from apiece.system.device import to_host

Info = dict[str, Any]


class Result(NamedTuple):
    """What a run gives back: one record a round, and the models."""

    metrics: list[Info]
    experiment: Experiment
    server: Server
    clients: Clients
    folder: Path | None
    accuracy: dict[int, float]

    def __repr__(self) -> str:
        name, last = (
            self.experiment.config.algorithm,
            [m["global_accuracy"] for m in self.metrics if "global_accuracy" in m],
        )
        accuracy = f"{last[-1]:.4f}" if last else None
        where = None if self.folder is None else str(self.folder)
        return f"Result({name!r}, rounds={len(self.metrics)}, global_accuracy={accuracy}, folder={where!r})"

    def model(self, client: int | str | None = None) -> dict[str, Tensor]:
        """What `load_state_dict` takes: the global model's, or that which one client, by its number or name, predicts
        with. Raises UserError for a client that there is not.

        Where the server has no global model, all that it makes models of, by name.
        """
        federated = self.experiment.federated
        client = client if client is None else numbered_client(client, self.experiment.federation.names)
        theta, buffers, _ = global_model(federated, self.server, self.clients)
        if client is not None:
            lr = self.experiment.plan(max(self.server.round - 1, 0)).lr
            each, shared = self.clients.each(client, self.server.round), federated.shared(self.server, lr)
            theta = federated.setup.broadcast.model(theta, self.server.broadcast, each)
            theta, buffers = predicting(federated.setup, Loop(), theta, buffers, shared, each)
        elif not federated.setup.broadcast.common:
            return to_host(federated.setup.broadcast.state(theta, self.server.broadcast))
        return to_host(federated.setup.task.space.state_dict(theta, buffers))


def numbered_client(client: int | str, names: Sequence[str]) -> int:
    """A client's number, from its number or its name; UserError where there is no such client."""
    try:
        number = names.index(client) if isinstance(client, str) else operator.index(client)
    except (TypeError, ValueError):  # no whole number, no name that is known
        number = -1
    if 0 <= number < len(names):
        return number
    raise UserError(
        f"there is no client {client!r}: give a number from 0 to {len(names) - 1}, or a name from {names[0]!r} to "
        f"{names[-1]!r}."
    )
