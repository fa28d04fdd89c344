"""What a run carries from round to round, what a round leaves, and what the run returns: metrics and models."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from torch import Tensor

from apiece.algebra.generators import Pipeline, Table
from apiece.algebra.place import Traffic
from apiece.config.assemble import Experiment
from apiece.engine.clients import Clients
from apiece.engine.predicting import beside, predicting
from apiece.engine.state import Plan, Server
from apiece.engine.stepping import Loop
from apiece.errors import UserError, nearest
from apiece.experiment.folders import say_once
from apiece.measure.drift import Running
from apiece.measure.global_average import global_model
from apiece.measure.scoring import Values
from apiece.report.metrics import Measure
from apiece.system.device import to_host
from apiece.vector.task import Task

Info = dict[str, Any]

WHOLE = re.compile(r"[+-]?\d+(\.0*)?")  # a client's name that is a whole number, as tables have them


class State(NamedTuple):
    """All that a run carries from round to round, except the clients' rows."""

    server: Server
    traffic: Traffic
    running: Running


class Round(NamedTuple):
    """A round that is done: the state after it, who was asked, and its record so far.

    >>> from apiece import federate
    >>> def watch(round: Round) -> dict[str, float]:
    ...     return {"length": float(round.state.server.params.norm())}
    >>> result = federate("softmax_regression", "digits", clients=5, rounds=2, steps=5, watchers=[watch])
    >>> result.metrics[-1]["length"] > 0
    True
    """

    experiment: Experiment
    clients: Clients
    state: State
    plan: Plan
    info: Info
    history: Sequence[Info] = ()  # the records of the rounds before
    measured: Mapping[int, Values] = MappingProxyType({})  # each client's metrics in the latest measurement, by number
    folder: Path | None = None
    since: int = 0  # the round at which the run was stopped before, and went on

    @property
    def number(self) -> int:
        """1, 2, ..."""
        return self.state.server.round

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The run's metrics, with their directions."""
        return measures_of(self.experiment.federated.setup.task)

    @property
    def last(self) -> bool:
        return self.number == self.experiment.config.rounds

    def model(self, client: int | str | None = None) -> dict[str, Tensor]:
        """The global model after this round, or one client's, as `Result.model` gives it."""
        return model_of(self.experiment, self.state.server, self.clients, client)


class Told(Info):
    """A round's record as `on_round` gets it: a mapping, `info["global_accuracy"]`, that knows the round itself too."""

    def __init__(self, round: Round):
        super().__init__(round.info)
        self._round = round

    @property
    def info(self) -> Info:
        return self

    @property
    def history(self) -> Sequence[Info]:
        """The records of the rounds before."""
        return self._round.history

    @property
    def since(self) -> int:
        return self._round.since

    @property
    def measures(self) -> tuple[Measure, ...]:
        return self._round.measures

    @property
    def server(self) -> Server:
        """The server's state after the round: its vector, buffers, optimizer and memory."""
        return self._round.state.server

    @property
    def clients(self) -> dict[str, Values]:
        """Each client's metrics in the latest measurement, by its name: `info.clients["ann"]["accuracy"]`."""
        names = self._round.experiment.federation.names
        return {names[client]: values for client, values in self._round.measured.items()}

    def model(self, client: int | str | None = None) -> dict[str, Tensor]:
        """The global model after this round, or one client's, as `Result.model` gives it."""
        return self._round.model(client)


class Result(NamedTuple):
    """What a run returns: one record per round, the models, and each client's metrics after the last round.

    >>> from apiece import federate
    >>> result = federate("softmax_regression", "digits", clients=5, rounds=2, steps=5)
    >>> [name for name in result.model()], len(result.metrics)
    (['head.weight', 'head.bias'], 2)
    """

    metrics: list[Info]
    experiment: Experiment
    server: Server
    clients: Clients
    folder: Path | None
    values: dict[int, Values]

    @property
    def accuracy(self) -> dict[str, float]:
        """Each client's accuracy after the last round, by its name; empty if accuracy was not measured."""
        names = self.experiment.federation.names
        return {names[client]: own["accuracy"] for client, own in self.values.items() if "accuracy" in own}

    def __repr__(self) -> str:
        name, key = self.experiment.config.algorithm, f"global_{self.experiment.federated.setup.task.metrics[0].name}"
        last = [info[key] for info in self.metrics if key in info]
        value = f"{last[-1]:.4f}" if last else None
        where = None if self.folder is None else str(self.folder)
        return f"Result({name!r}, rounds={len(self.metrics)}, {key}={value}, folder={where!r})"

    def model(self, client: int | str | None = None) -> dict[str, Tensor]:
        """The `load_state_dict` argument of the global model, or of one client's. `client` is its name, or its place: 0
        is the first. Where some client's name is a whole number, a number is a name, too. Raises UserError for a client
        that does not exist.

        The client's model is the one with which it predicts. A piece that takes part in predictions themselves, as
        `knn_per` and `class_mask` do, is no part of it, and a line says so. If the server has no global model, returns
        all tensors from which the server makes models, by name.
        """
        return model_of(self.experiment, self.server, self.clients, client)


def measures_of(task: Task) -> tuple[Measure, ...]:
    """The metrics of a task, as run folders and reports know them."""
    return tuple(Measure(metric.name, metric.higher, metric.unit) for metric in task.metrics)


def model_of(
    experiment: Experiment, server: Server, clients: Clients, client: int | str | None = None
) -> dict[str, Tensor]:
    """The global model, or one client's, as `Result.model` gives it."""
    federated, setup = experiment.federated, experiment.federated.setup
    client = client if client is None else place_of(client, experiment.federation.names)
    theta, buffers, _ = global_model(federated, server, clients)
    if client is not None:
        lr = experiment.plan(max(server.round - 1, 0)).lr
        each, shared = clients.each(client, server.round), federated.shared(server, lr)
        theta = setup.broadcast.model(theta, server.broadcast, each)
        theta, buffers = predicting(setup, Loop(), theta, buffers, shared, each)
        if needed := beside(setup):
            say_once(f"a client's model does not predict alone as the client does: {needed}.")
    elif isinstance(setup.broadcast, Pipeline | Table):
        return to_host(setup.broadcast.state(theta, server.broadcast))
    return to_host(setup.task.space.state_dict(theta, buffers))


def place_of(client: int | str, names: Sequence[str]) -> int:
    """A client's place among these names, from its name, or from the place; UserError if there is no such client. Where
    some name is a whole number, numbers are names, too: the place would be another client's.
    """
    if not isinstance(client, str) and any(map(WHOLE.fullmatch, names)):
        with suppress(TypeError):
            client = str(operator.index(client))
    try:
        place = names.index(client) if isinstance(client, str) else operator.index(client)
    except (TypeError, ValueError):  # not a whole number, or an unknown name
        place = -1
    if 0 <= place < len(names):
        return place
    if isinstance(client, str):
        raise UserError(f"no client has the name {client!r}; {nearest(client, names)}")
    raise UserError(
        f"there is no client {client!r}: give a number from 0 to {len(names) - 1}, or a name as a text, the first of "
        f"which is {names[0]!r}."
    )
