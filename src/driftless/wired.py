"""Every client a process of its own, spoken to in messages: `driftless run --lift wired`.

A deployment on one machine. Only what `traffic.down` and `traffic.up` declare crosses, as bytes; a process may end
between any two messages. The server knows of a client how many samples it has and which of its rounds counted. What
only a simulation may look at, a client's memory for personal accuracies, is read from the client's folder; drift is
not measured. The run is bitwise that of the sequential lift.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import safetensors.torch
import tomli_w
import torch
from torch.utils._pytree import tree_map

from driftless import files, wire
from driftless.assemble import OWN, chosen_algorithm
from driftless.client_processes import ClientProcesses
from driftless.clients import Clients, local_work
from driftless.config import to_table
from driftless.errors import UserError
from driftless.lift import Loop, Threaded
from driftless.piece import Rows as RowsMark
from driftless.piece import Samples, Sum
from driftless.rows import Layout, Row, Rows, Written
from driftless.state import Reply, Shared
from driftless.task import accuracy, cross_entropy
from driftless.traffic import Traffic, down, measure, received
from driftless.wire import Header
from driftless.wired_client import DATA, FAILED, NOT_FINITE, REFUSED, recall
from driftless.work import Work

if TYPE_CHECKING:
    from driftless.assemble import Experiment

PHASES = {"embed": RowsMark(torch.zeros(())), "embed_back": Sum(torch.zeros(()))}  # the form of a pipeline's answers


@dataclass(frozen=True)
class Wired:
    """How a run's clients work: so many at a time, each in a process of its own."""

    workers: int

    @classmethod
    def of(cls, experiment: Experiment, workers: int) -> Wired:
        """Raises UserError where clients cannot be built from the run's text: it was given objects."""
        config, task = experiment.config, experiment.federated.task
        given = {
            "model": config.model == OWN,
            "data": config.data == OWN,
            "loss": task.loss is not cross_entropy,
            "metric": task.metric is not accuracy,
            "algorithm": not _named(experiment),
        }
        if culprits := [name for name, own in given.items() if own]:
            raise UserError(
                f"lift='wired' builds every client from the run's text, and the {' and '.join(culprits)} "
                "of this run are objects of a program: name them, or take another lift."
            )
        return cls(workers)


def _named(experiment: Experiment) -> bool:
    with suppress(UserError):
        config = experiment.config
        return repr(chosen_algorithm(config.algorithm, config.plugin)) == repr(experiment.federated.algorithm)
    return False


def text_of(experiment: Experiment, digest: str) -> str:
    """All that a client is told of a run before the first message, in TOML."""
    config, dataset = experiment.config, experiment.dataset
    if config.init is not None:
        config = replace(config, init=str(Path(config.init).resolve()))
    shape = list(experiment.federation.test_pool[0].shape[1:])
    classes = dataset.classes if dataset is not None else 0
    resolved = {"digest": digest, "shape": shape, "classes": classes, "clients": len(experiment.federation.names)}
    return tomli_w.dumps({"config": to_table(config), "resolved": resolved})


class WiredRows(Rows):
    """Which rounds of each client counted, as far as the last two checkpoints need them; the rows are theirs."""

    def __init__(self, layout: Layout, folder: Callable[[int], Path]) -> None:
        super().__init__(layout)
        self._folder = folder

    def get(self, client: int) -> Row | None:
        """The client's own memory, for a simulation to look at."""
        names = [field[0] for field in self.layout.fields]
        return recall(self._folder(client), self.seen(client), names) if client in self._records else None

    def stage(self, round: int, client: int, row: Row) -> None:
        """The client has remembered this round: to be counted."""
        self._staged[client] = Written(round, 0, None)

    def counted(self, client: int) -> tuple[int, int, int]:
        """The client's last counted round now, and as of the older and newer of the last two checkpoints; -1: none."""
        rounds = [written.round for written in self._records.get(client, ())]
        older, newer = (max((r for r in rounds if r < number), default=-1) for number in (self._older, self._newer))
        return self.seen(client), older, newer

    def digest(self) -> str:
        """The rounds counted themselves: the server has no other place for them than its checkpoint."""
        counted = {client: [written.round for written in self._records[client]] for client in self.touched()}
        return json.dumps({"checkpoints": [self._older, self._newer], "counted": counted})

    def restore(self, number: int, digest: str | None = None) -> None:
        saved = json.loads(digest or '{"checkpoints": [], "counted": {}}')
        self._staged.clear()
        self._records = {int(c): [Written(r, 0, None) for r in rounds] for c, rounds in saved["counted"].items()}
        self._older, self._newer = max((n for n in saved["checkpoints"] if n < number), default=0), number

    def sync(self) -> None:
        """A client's memory is on its disk before it answers."""

    def close(self) -> None:
        """There is nothing to let go of."""

    def _write(self, client: int, round: int, crc: int, payload: bytes) -> None:
        raise AssertionError("clients write their own rows")

    def _read(self, place: Any) -> bytes:
        raise AssertionError("clients read their own rows")

    def _release(self, place: Any) -> None:
        """A client learns which rounds are needed from its next message."""

    def _erase(self, place: Any) -> None:
        """The same."""


class WiredClients(Clients):
    """Clients in processes of their own: an operation is a message to each, and answers come in the cohort's order."""

    def __init__(self, experiment: Experiment, home: Path, digest: str, lift: Wired) -> None:
        names = experiment.training.names
        self.folder = lambda client: home / "clients" / quote(names[client], safe="").replace(".", "%2E")
        self.counts = WiredRows(Layout.of(experiment.federated.fresh_row()), self.folder)
        config = experiment.config
        super().__init__(
            experiment.federated,
            experiment.training,
            experiment.work,
            config.seed,
            lift,
            self.counts,
            config.on_bad_client,
        )
        pool = experiment.federation.test_pool
        self.run, self.like = digest, tree_map(lambda leaf: leaf.new_zeros(2, *leaf.shape[1:]), pool)
        parts = [*self.federated.pieces, *self.federated.task.space.module.modules()]
        modules = {type(part).__module__ for part in parts}
        self.processes = ClientProcesses(text_of(experiment, digest), modules)
        self._threads = Threaded(lift.workers)  # each waits for a process

    @classmethod
    def open(cls, experiment: Experiment, folder: Path | None, digest: str, lift: Wired) -> WiredClients:
        """The clients of a run, in its folder; without one, in a folder that goes when nobody holds them any longer."""
        home = folder or Path(tempfile.mkdtemp(prefix="driftless-"))
        clients = cls(experiment, home, digest, lift)
        if folder is None:
            weakref.finalize(clients, shutil.rmtree, home, ignore_errors=True)
        return clients

    def replies(
        self, operation: str, shared: Shared, own: dict[int, Any], working: list[int], round: int
    ) -> Iterator[tuple[int, Reply, Traffic]]:
        """What each client answers; one whose process ended twice at this message is left out, as if it were absent."""

        def ask(how: Any, shared: Shared, client: int) -> tuple[tuple[int, int, int, int], bytes | None]:
            accepted, older, newer = self.counts.counted(client) if self.fresh else (-1, -1, -1)
            sent = down(self.federated, shared, own.get(client, ()), accepted)
            message = wire.pack(Header(self.run, operation, round, accepted, older, newer, float(shared.lr)), sent)
            return measure(sent, len(message)), self.processes.ask(self._delivered(client), message)

        answers = self._threads.run(ask, shared, (lambda c=c: c for c in working))
        for client, (crossed, answer) in zip(working, answers, strict=True):
            if answer is None:
                continue
            header, tensors = wire.unpack(answer)
            if header.operation == NOT_FINITE:
                yield client, Reply((), {}, {}, False), Traffic(*measure(tensors, len(answer)), *crossed)
                continue
            self._refuse(client, header, tensors)
            assert header[:3] == (self.run, operation, round), f"{header} answers another message"
            said = received(self.federated, tensors, PHASES.get(operation) or self.form, round, header.number)
            if operation == "train" and self.fresh:
                self.counts.stage(round, client, {})
            yield client, Reply(said, {}, {}, True), Traffic(*measure(tensors, len(answer)), *crossed)

    def close(self) -> None:
        """End all processes."""
        self.processes.close()

    @cached_property
    def form(self) -> Any:
        """The form of an answer after training, which bytes do not say, from one step on samples that are made up."""
        federated = self.federated
        samples, row, work = Samples(self.like, torch.arange(2), 2), federated.fresh_row(), Work(1, None, 2)
        each = local_work(federated, samples, "", 0, -1, row, work, 0, 0, ())
        shared = federated.shared(federated.start(), 1.0)._replace(model=federated.initial)
        return federated.train(Loop(), shared, each).said

    def _refuse(self, client: int, header: Header, tensors: dict[str, torch.Tensor]) -> None:
        if header.operation in (REFUSED, FAILED):
            text = bytes(tensors["text"].tolist()).decode()
            name = self.federation.names[client]
            raise UserError(text) if header.operation == REFUSED else RuntimeError(f"client {name!r} failed: {text}")

    def _delivered(self, client: int) -> Path:
        """The client's folder; its data are put there once, and stand for data that lie there."""
        folder = self.folder(client)
        if not (folder / DATA).exists():
            x, y = self.federation.samples(client).all()
            about = {"name": self.federation.names[client], "who": str(client)}
            files.make_folder(folder)
            files.atomic_write(folder / DATA, safetensors.torch.save({"x": x.contiguous(), "y": y.contiguous()}, about))
        return folder
