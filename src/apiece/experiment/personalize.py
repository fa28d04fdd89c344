"""A model for a client that a run never saw: `apiece personalize R --data client.npz --out model.safetensors`.

Each algorithm serves it in its own way: one forward pass (PeFLL), a new descriptor (pFedHN), training of the personal
parameters alone if there are any, what its pieces make of the client's data (fine-tuning, kNN), or else the global
model. The cost is reported.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
from torch import Tensor

from apiece.algebra.generators import Pipeline, Table
from apiece.algebra.optim import Freeze
from apiece.config.assemble import Experiment, assemble
from apiece.data.federation import Federation
from apiece.engine.clients import Clients
from apiece.engine.federated import Federated
from apiece.engine.predicting import beside, predicting, predictor, remakes
from apiece.engine.state import ClientTask, Server
from apiece.engine.stepping import Loop
from apiece.engine.traffic import down
from apiece.errors import UserError
from apiece.experiment import folders
from apiece.experiment.descriptors import ROUNDS, new_descriptor
from apiece.experiment.newcomer import newcomer
from apiece.experiment.result import Result
from apiece.experiment.run import trained
from apiece.lifts.lift import Sequential
from apiece.measure.scoring import Values, score
from apiece.pieces.fine_tune import FineTune
from apiece.system import files
from apiece.system.device import to_host

STRANGER = -1  # the number of a client that no server knows


class Served(NamedTuple):
    """The model that a client was given, and its cost."""

    state: dict[str, Tensor]  # what load_state_dict takes
    way: str
    up: int  # numbers sent to the server
    down: int  # numbers received from it
    steps: int  # gradients taken on the client
    seconds: float
    values: Values  # of the metrics, on the client's own test samples
    samples: int  # the number of these

    @property
    def accuracy(self) -> float | None:
        """Its accuracy; None where there are no test samples, or another metric."""
        return self.values.get("accuracy")

    def for_programs(self) -> dict[str, Any]:
        """All of it but the model, as values for JSON."""
        return {name: value for name, value in self._asdict().items() if name != "state"}

    def __str__(self) -> str:
        told = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in self.values.items())
        measured = f"; {told} on its {self.samples} test samples" if told else "; not measured, without test samples"
        gradients = f"{self.steps} local gradient{'s' * (self.steps != 1)}"
        return f"{self.way}; {self.up:,} numbers up and {self.down:,} down, {gradients}, {self.seconds:.2f} s{measured}"


@dataclass(frozen=True)
class Counted(Loop):
    """One client at a time, with a count of its gradients."""

    taken: list[int] = field(default_factory=lambda: [0])

    def differentiate(self, function: Any, theta: Tensor) -> tuple[Tensor, Tensor, Any]:
        self.taken[0] += 1
        return super().differentiate(function, theta)


class Given(NamedTuple):
    """A model on its way to the client."""

    way: str
    theta: Tensor
    up: int
    down: int
    steps: int = 0


def personalize(
    run: Path | Result, data: Path, out: Path | None = None, steps: int | None = None, plugin: Sequence[str] = ()
) -> Served:
    """Make a model for the client whose samples lie in `data` (an .npz of x_train, y_train, and x_test, y_test if any;
    a .csv or .parquet if the run read a table; texts in a .jsonl; a folder of images, one folder a class). `run` is a
    run's folder, or the result that `federate` returned, whose data or module may be a program's own.

    `steps` local steps follow; if none are asked for, personal parameters that nothing else trains get those of a
    round. The model is written to the file `out`. `plugin`: the plug-in files that a folder's run was made with. Raises
    UserError if the run or the samples do not fit.
    """
    if steps is not None and steps < 0:
        raise UserError(f"steps={steps} is no number of local steps: give 0 or more.")
    if out is not None:
        folders.make_place(out)
    if isinstance(run, Result):
        served = serve(run, newcomer(run.experiment, data), steps)
    else:
        served = _from_folder(folders.only(run), data, steps, plugin)
    if out is not None:
        files.atomic_write(out, safetensors.torch.save(served.state, {"way": str(served)}))
    return served


def opened(run: Path, plugin: Sequence[str] = ()) -> Experiment:
    """The experiment of a run's folder, for one process on the CPU: its module, its data, and how these became numbers.
    `plugin`: the plug-in files that the run was made with.
    """
    return assemble(replace(folders.read_one(run, plugin), device="cpu", out=str(run)))


def _from_folder(run: Path, data: Path, steps: int | None, plugin: Sequence[str]) -> Served:
    experiment = opened(run, plugin)
    place = newcomer(experiment, data)
    result = trained(experiment, run)
    try:
        return serve(result, place, steps)
    finally:
        result.clients.close()


def serve(result: Result, place: Federation, steps: int | None = None) -> Served:
    """The model of the only client of `place`, made in the way of the run's algorithm."""
    experiment, server, federated = result.experiment, result.server, result.experiment.federated
    config, work = experiment.config, experiment.work
    lr = experiment.plan(max(server.round - 1, 0)).lr
    trainers = [type(p).__name__ for p in federated.setup.pieces if remakes(p, newcomer=True)]
    if steps is None:
        own = federated.setup.periods.personal and not trainers
        steps = work.count(config.seed, server.round, place.names[0], place.size(0)) if own else 0
    if steps:
        federated, server = _trained_on(federated, server, steps, work.batch)
    clients, stepping = replace(experiment, federated=federated, training=place).clients(Sequential()), Counted()
    each, shared = clients.each(0, server.round)._replace(who=STRANGER), federated.shared(server, lr)

    began = time.perf_counter()
    given = _sent(server, clients, each, lr)
    theta, buffers = predicting(federated.setup, stepping, given.theta, server.buffers, shared, each)
    seconds = time.perf_counter() - began

    needed = beside(federated.setup)
    way = given.way + (f", trained on by {', '.join(trainers)}" if trainers and stepping.taken[0] else "")
    way += f", then {steps} local steps" if steps else ""
    way += f" ({needed})" if needed else ""
    predict = lambda x: federated.setup.task.space.outputs(theta, x, buffers)
    if needed:
        predict = predictor(federated.setup, Loop(), given.theta, server.buffers, shared, each)
    rows = place.test_rows(0)
    task = federated.setup.task
    values = score(task, predict, place.test_pool, rows).of(task.metrics) if len(rows) else {}
    state = to_host(federated.setup.task.space.state_dict(theta, buffers))
    return Served(state, way, given.up, given.down, given.steps + stepping.taken[0], seconds, values, len(rows))


def _sent(server: Server, clients: Clients, each: ClientTask, lr: float) -> Given:
    """What the server sends to a client without a past, before any training of the client's own."""
    federated, broadcast = clients.federated, clients.federated.setup.broadcast
    size = federated.setup.task.space.size + len(server.buffers)
    if isinstance(broadcast, Pipeline):
        theta, up = broadcast.model(server.params, server.broadcast, each), len(broadcast.describe(server.params, each))
        return Given(
            "one forward pass: a descriptor of the client's data up, its model down", theta, up, broadcast.split + size
        )
    if isinstance(broadcast, Table):
        new = new_descriptor(server, clients, 0, lr)
        way = f"a new descriptor, learned in {ROUNDS} rounds with the server"
        return Given(way, new.model, new.traffic.numbers_up, new.traffic.numbers_down + size, new.steps)
    sent = down(federated.setup, federated.shared(server, lr), (), -1)
    way = (
        "the shared parameters, and the initial ones for its own"
        if federated.setup.periods.personal
        else "the global model"
    )
    way = "the initial model" if bool(federated.setup.periods.never.all()) else way
    return Given(way, server.params, 0, len(sent["model"]) + len(sent["buffers"]))


@dataclass(frozen=True)
class FurtherSteps(FineTune):
    """The steps that are asked for, if the algorithm itself fine-tunes: two pieces may not have the same name."""


def _trained_on(federated: Federated, server: Server, steps: int, batch: int) -> tuple[Federated, Server]:
    """The algorithm with so many local steps added at its end; if some parameters are personal, these alone train."""
    never = federated.setup.periods.never
    some = federated.setup.periods.personal and not bool(never.all())
    kind = FurtherSteps if any(type(p) is FineTune for p in federated.setup.pieces) else FineTune
    last = kind(0, steps, batch, optimizer=Freeze(federated.setup.optimizer, never, steps) if some else None)
    longer = replace(federated.setup.algorithm, pieces=(*federated.setup.pieces, last))
    server = server._replace(memory=server.memory | {last.stream: ()})
    return Federated(replace(federated.setup, algorithm=longer)), server
