"""Every client is a process of its own, and only messages reach it: `apiece run --lift wired`.

This is a deployment on one machine. Only what `traffic.down` and `traffic.up` declare crosses, as bytes; a process may
end between any two messages. The server knows how many samples a client has and which of its rounds counted. Personal
accuracies also need a client's memory, which is read from the client's folder; drift is not measured. The run is
bitwise that of the sequential lift.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

import tomli_w
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from apiece.algebra.generators import Pipeline
from apiece.algebra.place import Shared, Traffic
from apiece.config.assemble import chosen_algorithm
from apiece.config.settings import OBJECTS
from apiece.config.tables import to_table
from apiece.data.catalog import OWN
from apiece.data.samples import Samples
from apiece.engine import messages, row
from apiece.engine.client import train
from apiece.engine.clients import BadClient, Clients, NotFinite, local_work, not_finite
from apiece.engine.messages import Header
from apiece.engine.pipeline import embed, embed_back
from apiece.engine.state import Reply, finite
from apiece.engine.stepping import Loop
from apiece.engine.traffic import down, measure, received, up
from apiece.engine.work import Work
from apiece.errors import UserError
from apiece.lifts.lift import Sequential
from apiece.storage.row_format import RowFormat
from apiece.system.temporary import TemporaryFolder
from apiece.vector.metrics import BUILT_IN, LOSSES
from apiece.wired import client_folder
from apiece.wired.client import FAILED, NOT_FINITE, REFUSED
from apiece.wired.processes import ClientProcesses
from apiece.wired.remote import Remote
from apiece.wired.rows import WiredRows
from apiece.wired.transport import Local, Transport

if TYPE_CHECKING:
    from apiece.config.assemble import Experiment

Counts = tuple[int, int, int, int]  # as `measure` returns them

ASKED = ("lr", "sampling")  # what the server alone decides, and says in its messages


@dataclass(frozen=True)
class Wired:
    """How a run's clients work: `workers` at a time, each in a process of its own."""

    workers: int

    way: ClassVar[str] = "each in a process of its own"

    @classmethod
    def of(cls, experiment: Experiment, workers: int) -> Wired:
        """Raises UserError if clients cannot be built from the run's text, because the run was given objects."""
        config, task = experiment.config, experiment.federated.setup.task
        given = {
            "model": config.model == OWN,
            "data": config.data == OWN and not isinstance(experiment.federation, Remote),
            "loss": task.loss not in LOSSES,
            "metric": not BUILT_IN.issuperset(task.metrics),
            "algorithm": not _named(experiment),
            **{name: getattr(config, name) == OWN for name in OBJECTS if name not in ASKED},
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
        return repr(chosen_algorithm(config.algorithm, config.plugin)) == repr(experiment.federated.setup.algorithm)
    return False


def text_of(experiment: Experiment, digest: str) -> str:
    """All that a client learns about a run before the first message, in TOML."""
    config, setting = experiment.config, experiment.federated.setup.setting
    if config.init is not None:
        config = replace(config, init=str(Path(config.init).resolve()))
    shape = list(experiment.federation.test_pool[0].shape[1:])
    classes = setting.classes if setting is not None else 0
    resolved = {"digest": digest, "shape": shape, "classes": classes, "clients": len(experiment.federation.names)}
    resolved["task"] = experiment.federated.setup.task.name
    if isinstance(experiment.federation, Remote):
        resolved |= {"labels": list(experiment.federation.labels), "columns": list(experiment.federation.columns)}
    return tomli_w.dumps({"config": to_table(config), "resolved": resolved})


class WiredClients(Clients):
    """Clients in processes of their own: an operation sends a message to each, and yields answers in cohort order."""

    def __init__(self, experiment: Experiment, home: Path, digest: str, lift: Wired) -> None:
        names = experiment.training.names
        self.folder = lambda client: home / "clients" / quote(names[client], safe="").replace(".", "%2E")
        self.counts = self._counts(RowFormat.of(row.write(row.fresh(experiment.federated.setup))), digest)
        config = experiment.config
        super().__init__(
            experiment.federated,
            experiment.training,
            experiment.work,
            config.seed,
            Sequential(),  # in each process its one client
            self.counts,
            config.on_bad_client,
        )
        pool = experiment.federation.test_pool
        self.run, self.like = digest, tree_map(lambda leaf: leaf.new_zeros(2, *leaf.shape[1:]), pool)
        self.transport = self._transport(experiment, lift)

    def _counts(self, layout: RowFormat, digest: str) -> WiredRows:
        return WiredRows(layout, self.folder, digest)

    def _transport(self, experiment: Experiment, lift: Wired) -> Transport:
        parts = [*self.federated.setup.pieces, *self.federated.setup.task.space.module.modules()]
        modules = {type(part).__module__ for part in parts}
        processes = ClientProcesses(text_of(experiment, self.run), modules, experiment.config.patience)
        return Local(processes, self._delivered, lift.workers)

    @classmethod
    def open(cls, experiment: Experiment, folder: Path | None, digest: str, lift: Wired) -> WiredClients:
        """The clients of a run, in its folder, or in a temporary folder that is removed when nothing refers to it."""
        if folder is not None:
            return cls(experiment, folder, digest, lift)
        home = TemporaryFolder()
        clients = cls(experiment, home.path, digest, lift)
        weakref.finalize(clients, home.remove)
        return clients

    def replies(
        self, operation: str, shared: Shared, own: dict[int, Tensor], working: list[int], round: int
    ) -> Iterator[tuple[int, Reply | BadClient | None, Traffic]]:
        """Each client's answer; None for a client whose process ended twice at this message, as for an absent one."""

        asked: dict[int, tuple[Header, Counts]] = {}

        def made(client: int) -> bytes:
            counted = self.counts.counted(client) if self.fresh else {}
            lr = self.federated.setup.lr_in(shared.lr, self.federation.names[client])
            header = Header(self.run, operation, client, round, number=lr, **counted)
            sent = down(self.federated.setup, shared, own.get(client, ()), header.accepted)
            if not bool(finite(sent)):
                raise NotFinite(
                    f"what the server would send to {self._named(client)} in round {round + 1} is not finite: most "
                    f"likely the step size of {self.federated.setup.server_optimizer!r} is too large; lower it in a "
                    "new run."
                )
            message = messages.pack(header, sent)
            asked[client] = header, measure(sent, len(message))
            return message

        for client, answer in zip(working, self.transport.ask(working, made), strict=True):
            if answer is None:  # it was sent the message all the same, unless it was not there
                sent = asked[client][1] if client in asked else ()
                yield client, None, Traffic(0, 0, 0, 0, *sent)
                continue
            header, crossed = asked.pop(client)
            reply, back = self.answered(header, answer)
            if isinstance(reply, BadClient):
                self.transport.declined(client, str(reply))
            elif not bool(reply.finite):
                self.transport.declined(client, str(not_finite(self, client, round, shared.lr)))
            yield client, reply, Traffic(*back, *crossed)

    def answered(self, asked: Header, answer: bytes | memoryview) -> tuple[Reply | BadClient, Counts]:
        """(a client's answer to the message with this header, or why it is refused; its share of the ledger).

        Nothing of a refused answer is stored.
        """
        try:
            header, tensors = messages.unpack(answer)
        except UserError as error:
            return self.unfit(asked, str(error).partition(":")[0]), measure({}, len(answer))
        return self._reply(asked, header, tensors), measure(tensors, len(answer))

    def close(self) -> None:
        """End the transport: no more messages are sent."""
        self.transport.close()

    @cached_property
    def forms(self) -> dict[str, Any]:
        """The shapes of an answer to each operation, which bytes do not tell, from one step on made-up samples."""
        setup, start = replace(self.federated.setup, lr_by_client=None), self.federated.start()
        samples, fresh, work = Samples(self.like, torch.arange(2), 2), row.fresh(setup), Work(1, None, 2)
        each = local_work(setup, samples, "", 0, -1, fresh, work, 0, 0, ())
        shared = self.federated.shared(start, 1.0)._replace(model=setup.initial)
        forms = {"train": train(setup, Loop(), shared, each).message}
        if isinstance(setup.broadcast, Pipeline):
            shared = shared._replace(model=start.params[: setup.broadcast.split])
            forms["embed"] = embed(setup, Loop(), shared, each).message
            forms["embed_back"] = embed_back(setup, Loop(), shared, each._replace(sent=forms["embed"].x)).message
        return forms

    def misfit(
        self, asked: Header, header: Header, tensors: dict[str, Tensor], form: dict[str, Tensor], stopped: bool = False
    ) -> BadClient | None:
        """Why this is no answer to the message with the header `asked`, if it is none: it was refused there, or its own
        header or its tensors are not as expected. `stopped`: the answer is that training became non-finite.
        """
        if header.operation in (REFUSED, FAILED):
            return self._declined(asked, header, tensors)
        due = asked._replace(operation=NOT_FINITE) if stopped else asked
        for name in ("run", "operation", "client", "round", "accepted", "older", "newer"):
            if (found := getattr(header, name)) != (wanted := getattr(due, name)):
                return self.unfit(asked, f"its {name} is {found!r} where {wanted!r} is expected")
        why = messages.misfit(tensors, {} if stopped else form)
        return self.unfit(asked, why) if why else None

    def _reply(self, asked: Header, header: Header, tensors: dict[str, Tensor]) -> Reply | BadClient:
        stopped, form = header.operation == NOT_FINITE, self.forms[asked.operation]
        if bad := self.misfit(asked, header, tensors, up(self.federated.setup, form, asked.round), stopped):
            return bad
        if stopped:
            return Reply((), (), {}, False)
        size = self.federation.size(asked.client)
        weight = self.federated.setup.weight(size) if hasattr(form, "weight") else 1.0
        if header.number != weight:
            return self.unfit(asked, f"its weight is {header.number:g} where {weight:g} is expected")
        if asked.operation == "train" and self.fresh:
            self.counts.remembered(asked.round, asked.client, header.memory)
        return Reply(received(self.federated.setup, tensors, form, asked.round, header.number), (), {}, True)

    def _declined(self, asked: Header, header: Header, tensors: dict[str, Tensor]) -> BadClient:
        """Why a client gave no answer, in its own words: of a failure the last line, with the rest as the cause."""
        said = messages.text(tensors["text"]).split("\n") if "text" in tensors else ["it does not say why."]
        if header.operation == REFUSED:
            return BadClient(
                f"{self._named(asked.client)} refused a message of round {asked.round + 1}: {' '.join(said)}"
            )
        bad = BadClient(
            f"{self._named(asked.client)} failed in round {asked.round + 1} with {said[-1].rstrip('.')}: "
            f"{self._cure('mend it')}"
        )
        bad.__cause__ = RuntimeError("\n".join(said))
        return bad

    def unfit(self, asked: Header, why: str) -> BadClient:
        """That what a client sent is no answer to the message with this header, and why."""
        return BadClient(
            f"{self._named(asked.client)} sent what is no answer to {asked.operation!r} in round {asked.round + 1}, as "
            f"{why}: {self._cure('find out what changes its messages')}"
        )

    def _cure(self, first: str) -> str:
        """What to do about a client, for a run that ends with it, and for one that goes on without it."""
        goes_on = self.on_bad_client == "skip"
        rest = "" if goes_on else ", or go on without such clients: `apiece resume FOLDER --on-bad-client skip`"
        return f"{first}{rest}."

    def _named(self, client: int) -> str:
        return f"client {self.federation.names[client]!r}"

    def _delivered(self, client: int) -> Path:
        """The client's folder, with its data written there once, as if they had been there from the start."""
        folder, names = self.folder(client), self.federation.names
        if not (folder / client_folder.DATA).exists():
            client_folder.deliver(folder, self.run, client, names[client], *self.federation.samples(client).all())
        return folder
