"""What a run saves between rounds, and how it continues: a checkpoint, with the log and the clients' rows of its round.

A run continues in this order, so that after a crash at any moment it can still continue:

    start = chosen(experiment, clients, folder, digest)    changes nothing
    checkpoints above start.number are set aside           the run discards them
    run.toml gets another number of rounds                 if one was asked for
    clients' rows, then the log, return to start.number
    run.toml gets another checkpoint_every                 after the log: its length tells of lost checkpoints
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from apiece.algebra.place import Traffic
from apiece.config.assemble import Experiment
from apiece.engine.clients import BadClient, Clients, NotFinite
from apiece.engine.row import OPTIMIZER
from apiece.engine.state import Server
from apiece.experiment import folders, identity, lifecycle
from apiece.experiment.result import Info, Round, State
from apiece.measure.drift import Running
from apiece.measure.scoring import Values
from apiece.storage import checkpoint
from apiece.storage.checkpoint_files import done, path_of
from apiece.storage.log import VALUES, Log, kept, round_of, values_kept
from apiece.storage.trees import flatten, restore
from apiece.system.device import to_device
from apiece.system.processes import Lost


class Start(NamedTuple):
    """Where a run continues: its newest checkpoint with matching rows and log (None: at the start), and the log."""

    found: checkpoint.Checkpoint | None
    lines: list[bytes]

    @property
    def number(self) -> int:
        return self.found.number if self.found else 0


def first(experiment: Experiment) -> State:
    """The state before the first round."""
    federated = experiment.federated
    return State(federated.start(), Traffic(), Running.zero(federated.setup.initial))


def chosen(experiment: Experiment, clients: Clients, folder: Path, digest: str) -> Start:
    """Where the run in the folder continues. Raises UserError if no checkpoint can be used, if all are lost, or if the
    run cannot have this number of rounds.

    The last round of a run is measured more fully than the others. So a run that gets more rounds repeats its last
    round as an ordinary one, and a run that gets fewer stops before its new last round.
    """
    rounds, there = experiment.config.rounds, folders.recorded(folder).rounds
    identity.refuse_rounds(folder, experiment.config)
    lifecycle.refuse_lost(folder)
    most = rounds if rounds == there else min(rounds, there) - 1
    lines: dict[int, list[bytes]] = {}

    def agree(found: checkpoint.Checkpoint) -> None:
        lines[found.number] = kept(folder, found.number, found.about.get("log"))
        clients.check(found.number, found.about["rows"])

    found = lifecycle.newest(folder, digest, lambda reason: folders.note(folder, reason), most, agree)
    if found is None:
        clients.check(0, None)
    return Start(found, lines[found.number] if found else [])


def go_on(
    experiment: Experiment, clients: Clients, folder: Path, digest: str
) -> tuple[State, list[Info], Log | None, Log | None]:
    """Return the folder to the checkpoint where the run continues. Gives the state there, and on the first rank the
    rounds so far, their log, and the log of clients' values.
    """
    ranks = clients.ranks
    start = ranks.first(lambda: chosen(experiment, clients, folder, digest))  # raises before anything is changed
    number, begun = ranks.everyone((start.number, start.found is not None) if start else None)[0]
    found = start.found if start else checkpoint.read(path_of(folder, number), digest) if begun else None
    ranks.everyone(None)  # every rank has read the files that change now
    ranks.first(lambda: lifecycle.leave_behind(folder, number, experiment.config.rounds))
    clients.restore(number, found.about["rows"] if found else None)
    log = ranks.first(lambda: Log.rewound(folder, start.lines))
    values = ranks.first(lambda: Log.rewound(folder, values_kept(folder, number), VALUES))
    ranks.first(lambda: folders.write_checkpoint_every(folder, experiment.config.checkpoint_every))
    state = unpacked(found.tensors, first(experiment), number) if found else first(experiment)
    return state, [round_of(line) for line in start.lines] if start else [], log, values


def save(folder: Path, digest: str, state: State, clients: Clients, log: Log | None, values: Log | None = None) -> None:
    """Write a checkpoint, after the rows and the logs of its rounds are on the disk; the first rank has the logs."""
    number = state.server.round

    def write() -> None:
        assert log is not None
        if values is not None:
            values.settle()
        about = {"log": log.settle(), "rows": clients.digest()}
        checkpoint.write(folder, number, packed(state), about, digest)

    clients.sync()
    clients.ranks.first(write)
    clients.checkpointed(number)


class Saves(NamedTuple):
    """How a run is saved: the watchers that write to its folder, if it has one; the first rank has the logs, of rounds
    and of clients' values.
    """

    folder: Path | None
    digest: str
    clients: Clients
    log: Log | None
    each: Log | None = None
    again: str = ""  # the command that resumes the run

    def values(self, round: Round, values: Mapping[int, Values]) -> None:
        """Write the clients' values of the metrics after the round, by metric and client."""
        if self.each is not None:
            names, metrics = round.experiment.federation.names, round.experiment.federated.setup.task.metrics
            by_metric = {
                metric.name: {names[client]: own[metric.name] for client, own in values.items() if metric.name in own}
                for metric in metrics
            }
            self.each.append({"round": round.number, "values": by_metric})

    def line(self, round: Round) -> None:
        """Write the round's line of metrics.jsonl."""
        if self.log is not None:
            self.log.append(round.info)

    def checkpoint(self, round: Round) -> None:
        """Save a checkpoint when one is due, and one before the last round: the last is measured more fully than the
        others, so a run that gets more rounds continues before it.
        """
        config = round.experiment.config
        if self.folder is not None and (
            round.number % config.checkpoint_every == 0 or round.number + 1 >= config.rounds
        ):
            save(self.folder, self.digest, round.state, self.clients, self.log, self.each)

    def stopped(self, state: State, metrics: Sequence[Info]) -> None:
        """Save the state of a run that ends before its last round, unless it is saved; then write its last
        record once more, with what is measured at the end, which no checkpoint has, and note where the run ended.
        """
        ranks, folder, number = self.clients.ranks, self.folder, state.server.round
        if folder is None:
            return
        if ranks.from_first(lambda: done(folder)) < number:
            save(folder, self.digest, state, self.clients, self.log, self.each)
        if self.log is not None:
            self.log.append(metrics[-1])
        ranks.first(lambda: folders.write_stopped(folder, number))

    @contextmanager
    def kept(self, before: State) -> Iterator[None]:
        """If the round in this context fails, save the state before it; of a first round that became non-finite there
        is nothing to save.
        """
        try:
            yield
        except (NotFinite, Lost) as error:
            unknown = isinstance(error, Lost) and self.clients.ranks.world > 1  # to the other ranks
            nothing = isinstance(error, NotFinite) and not before.server.round
            if self.folder is None or unknown or nothing:
                raise
            save(self.folder, self.digest, before, self.clients, self.log, self.each)
            if not isinstance(error, BadClient):
                raise
            skip = f"`{self.again} --on-bad-client skip` continues without such clients"
            raise BadClient(f"{error} The rounds before are saved: {skip}.") from None


def packed(state: State) -> dict[str, Tensor]:
    """The state as named tensors."""
    server = state.server
    return {
        "params": server.params,
        "buffers": server.buffers,
        "traffic": torch.tensor(state.traffic, dtype=torch.int64),
        "offset": state.running.offset,
        "square": state.running.square,
        **flatten(OPTIMIZER, server.optimizer),
        **flatten("memory", server.memory),
        **flatten("broadcast", server.broadcast),
    }


def unpacked(tensors: dict[str, Tensor], first: State, number: int) -> State:
    """The inverse of `packed`, after `number` rounds; `first` gives the structure."""
    traffic = Traffic(*tensors["traffic"].tolist())
    tensors = to_device(tensors, first.server.buffers.device)
    server = Server(
        number,
        tensors["params"],
        tensors["buffers"],
        restore(first.server.optimizer, tensors, OPTIMIZER),
        restore(first.server.memory, tensors, "memory"),
        restore(first.server.broadcast, tensors, "broadcast"),
    )
    return State(server, traffic, Running(tensors["offset"], tensors["square"]))
