"""A client in a process of its own: it is built from the run's text and its own folder, and only bytes reach it.

After each round the client writes a memory, which counts once the server has accepted its answer. Each memory contains
the header of the message that it was made for. A message says which memory of this client was the last to count, and of
which rounds the server may still ask for one: those that counted at its last two checkpoints. Once a memory has
counted, all earlier ones are removed, except those that its own header asked for. Nothing else removes a memory; so no
message does so by itself, because the answer to a message that the server did not send is not counted. Therefore a
message may be sent twice, and a server that returns to an earlier checkpoint finds every client as it was then.
"""

from __future__ import annotations

import tomllib
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from apiece.algebra.broadcast import FederationFacts
from apiece.algebra.generators import Pipeline
from apiece.algebra.place import Shared
from apiece.config.assemble import federated_of, work_of
from apiece.config.checks import settled
from apiece.config.goal import goal_of
from apiece.config.settings import Config
from apiece.config.tables import from_table
from apiece.data.federation import Numbered
from apiece.data.samples import Samples
from apiece.engine import messages, row
from apiece.engine.clients import local_work
from apiece.engine.federated import Federated
from apiece.engine.messages import Header
from apiece.engine.operations import OPERATIONS
from apiece.engine.state import ClientTask
from apiece.engine.stepping import Loop
from apiece.engine.traffic import arrived, down, up
from apiece.engine.work import Work
from apiece.errors import UserError
from apiece.storage.row_format import Row, StoreError
from apiece.system import files, signals
from apiece.wired import client_folder
from apiece.wired.client_folder import PHASE
from apiece.wired.measuring import MEASURING, SENT_WHOLE, own_model

NOT_FINITE, REFUSED, FAILED = "not finite", "refused", "failed"  # what an answer's header says instead of the operation


@dataclass(frozen=True)
class Client:
    """One client between two messages: all that changes lies in its folder."""

    folder: Path
    run: str
    name: str
    who: int
    samples: Samples
    federated: Federated
    work: Work
    seed: int
    tests: Any = None  # its own test samples (x, y), if it has some

    @classmethod
    def build(cls, text: str, folder: Path) -> Client:
        """The client whose data lie in that folder, in the run of that text: TOML with [config] and [resolved].

        Raises StoreError if the data are missing, damaged, or of another run.
        """
        table = tomllib.loads(text)
        config, resolved = from_table(table["config"], "the run's text", saved=True), table["resolved"]
        who, name, pool = client_folder.data(folder, resolved["digest"], resolved["shape"])
        return cls.of(config, resolved, folder, who, name, pool)

    @classmethod
    def of(
        cls, config: Config, resolved: dict[str, Any], folder: Path, who: int, name: str, pool: Any, tests: Any = None
    ) -> Client:
        """The client of that number and name, with these training and test samples (x, y), in a run."""
        names = Numbered(resolved["clients"])  # it knows only the number of the other clients
        setting = FederationFacts(
            tuple(resolved["shape"]), resolved["classes"], names, (), config.seed, resolved["task"]
        )
        samples = Samples(pool, torch.arange(len(pool[1])), len(pool[1]))
        federated = federated_of(
            config, setting, goal_of(config, resolved["task"]), fitting=partial(settled, samples=samples)
        )[1]
        return cls(folder, resolved["digest"], name, who, samples, federated, work_of(config), config.seed, tests)

    def answer(self, message: bytes | memoryview) -> bytes:
        """Do what a message asks; the same message gives the same answer.

        Raises UserError, and changes nothing, for a message that does not fit: of another run, for another client, not
        of the form that this round's messages have, or one that names a memory which is not here.
        """
        try:
            header, tensors = messages.unpack(message)
        except UserError as error:
            raise UserError(f"client {self.name!r} was sent something that is no message: {error}") from None
        self._refuse_other(header)
        shared, sent = self._asked(header, tensors)
        each = self._each(header, sent)
        if header.operation in MEASURING:
            said = MEASURING[header.operation](self.federated.setup, shared, each, self.tests)
            if header.operation == "evaluate":
                model = messages.save(own_model(self.federated.setup, shared, each))
                files.atomic_write(self.folder / client_folder.MODEL, model)
            return messages.pack(header, said)
        reply = OPERATIONS[header.operation](self.federated.setup, Loop(), shared, each)
        if not bool(reply.finite):
            return messages.pack(header._replace(operation=NOT_FINITE), {})
        if header.operation == "embed":  # the first phase is stored until the last
            files.atomic_write(self.folder / PHASE, messages.pack(header, {"phi": shared.vector, "v": reply.message.x}))
        kept = row.write(reply.row) if reply.row else {}
        remembered = client_folder.remember(self.folder, header, kept) if kept else 0
        weight = getattr(reply.message, "weight", None)
        number = 1.0 if weight is None else float(weight.x)
        said = up(self.federated.setup, reply.message, header.round)
        return messages.pack(header._replace(memory=remembered, number=number), said)

    def _each(self, header: Header, sent: Any) -> ClientTask:
        """All that this client works on in the round of this header."""
        kept = row.reader(row.fresh(self.federated.setup))(self._recall(header))
        at = self.name, self.who, header.accepted, kept
        return local_work(self.federated.setup, self.samples, *at, self.work, self.seed, header.round, sent)

    def _refuse_other(self, header: Header) -> None:
        """Raise UserError if a message with this header cannot be for this client."""
        if header.run != self.run:
            raise UserError(
                f"client {self.name!r} is of run {self.run}, and the message of run {header.run}: send it "
                "to a client of that run."
            )
        if header.client != self.who:
            raise UserError(
                f"client {self.name!r} has the number {self.who}, and the message is for number {header.client}: send "
                "it to that client."
            )
        pipeline = isinstance(self.federated.setup.broadcast, Pipeline)
        operations = (*OPERATIONS, *MEASURING) if pipeline else ("train", *SENT_WHOLE)
        if header.operation not in operations:
            known = ", ".join(operations)
            raise UserError(f"client {self.name!r} knows no operation {header.operation!r}: use {known}.")
        if not -1 <= header.older <= header.newer <= header.accepted < header.round:
            raise self._unfit(
                header,
                f"its rounds {header.older}, {header.newer}, {header.accepted} (as of two checkpoints, and the last "
                f"that counted) and {header.round} are not in order",
            )
        if header.memory and header.accepted < 0:
            raise self._unfit(header, "it names a memory and no round in which that was made")
        if not 0 <= header.number <= torch.finfo(self.federated.setup.initial.dtype).max:
            raise self._unfit(header, f"its step size is {header.number:g}")

    def _unfit(self, header: Header, why: str) -> UserError:
        return UserError(
            f"client {self.name!r} refuses the message for {header.operation!r} in round {header.round + 1}, as {why}: "
            "send one that this run makes."
        )

    def _asked(self, header: Header, tensors: dict[str, Tensor]) -> tuple[Shared, Any]:
        """(what all clients were sent, what only this client was sent), checked against the form of such messages."""
        setup, operation, round = self.federated.setup, header.operation, header.round
        first = self._first_phase(round) if operation == "embed_back" else {}
        phi = setup.initial
        if isinstance(setup.broadcast, Pipeline) and operation in ("embed", "describe"):
            phi = phi.new_zeros(setup.broadcast.split)
        told = setup.templates.from_server
        form = Shared(round, header.number, first.get("v", phi), setup.initial_buffers, told)
        seen = -1 if operation in SENT_WHOLE else header.accepted
        if why := messages.misfit(tensors, down(setup, form, (), seen)):
            raise self._unfit(header, why)
        if operation in ("train", *SENT_WHOLE):
            return arrived(setup, tensors, round, header.number, seen), ()
        if operation in ("embed", "describe"):
            return form._replace(model=tensors["model"], from_server={}), ()
        return form._replace(model=first["phi"], from_server={}), tensors["model"]

    def _first_phase(self, round: int) -> dict[str, Tensor]:
        with suppress(StoreError):
            _, header, first = client_folder.read(self.folder / PHASE, "the first phase", self.run, "")
            if header.round == round:
                return first
        raise UserError(f"client {self.name!r} lacks the first phase of round {round + 1}: send it.")

    def _recall(self, header: Header) -> Row:
        """The memory that counts. Earlier ones are removed, except those that were needed when it was made."""
        fresh = row.write(row.fresh(self.federated.setup))
        if header.accepted < 0 or not fresh:
            return fresh
        made, kept = client_folder.recall(self.folder, self.run, self.who, header.accepted, header.memory)
        client_folder.remove_before(self.folder, header.accepted, {made.accepted, made.older, made.newer})
        return kept


def serve(pipe: Any, text: str, folder: str) -> None:
    """Answer messages until the other side closes the pipe; nothing but bytes enters or leaves."""
    signals.ignore()  # the server ends its clients
    torch.set_num_threads(1)
    client = None
    with suppress(EOFError, OSError):
        while True:
            message = pipe.recv_bytes()

            def answer(message: bytes = message) -> bytes:
                nonlocal client
                client = client or Client.build(text, Path(folder))
                return client.answer(message)

            pipe.send_bytes(instead_of_errors(answer))


def instead_of_errors(answer: Callable[[], bytes], say: Callable[[str], None] = lambda text: None) -> bytes:
    """An answer, or, where it raises an error, a message that says which; the same is said here by `say`."""
    try:
        return answer()
    except UserError as error:
        why, told = REFUSED, str(error)
    except (Exception, SystemExit) as error:  # a plug-in's sys.exit() would end the node's only thread in silence
        place = traceback.extract_tb(error.__traceback__)[-1]
        last = f"{type(error).__name__} at {place.filename}:{place.lineno}: {' '.join(str(error).split())}"
        why, told = FAILED, traceback.format_exc() + last
    say(f"a message was {why}: {told}")
    return _instead(why, told)


def _instead(why: str, said: str) -> bytes:
    return messages.pack(Header("", why, -1, -1), {"text": messages.letters(said)})
