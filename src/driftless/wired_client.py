"""A client in a process of its own: built from the run's text and its own folder, spoken to only in bytes.

The folder holds `data.safetensors` (written once; it stands for data that lie there), and the client's memory: one file
a round, `round-000012.safetensors`. A message says which round of this client was the last that counted, and which
counted as of the server's last two checkpoints. Exactly these are kept: a memory that never counted is dropped, so that
a message may be sent again, and a server that falls back one checkpoint finds every client as it was then.
"""

from __future__ import annotations

import signal
import tomllib
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from driftless import files, wire
from driftless.assemble import federated_of
from driftless.broadcast import Setting
from driftless.clients import local_work
from driftless.config import from_table
from driftless.data.federation import Numbered
from driftless.errors import UserError
from driftless.federated import Federated, Shared
from driftless.lift import Loop
from driftless.piece import Samples
from driftless.state import numbered
from driftless.traffic import arrived, up
from driftless.wire import Header
from driftless.work import Work, work_of

DATA, PHASE = "data.safetensors", "phase.safetensors"
OPERATIONS = ("train", "embed", "embed_back")
NOT_FINITE, REFUSED, FAILED = "not finite", "refused", "failed"  # what an answer's header says instead of the operation


def memory(folder: Path, round: int) -> Path:
    """Where a client's memory of that round lies."""
    return folder / f"round-{round:06d}.safetensors"


@dataclass(frozen=True)
class Client:
    """One client between two messages: all that changes is in its folder."""

    folder: Path
    run: str
    name: str
    who: int
    samples: Samples
    federated: Federated
    work: Work
    seed: int

    @classmethod
    def build(cls, text: str, folder: Path) -> Client:
        """The client whose data lie in that folder, in the run of that text: TOML, [config] and what was [resolved]."""
        table = tomllib.loads(text)
        config, resolved = from_table(table["config"], "the run's text"), table["resolved"]
        names = Numbered(resolved["clients"])  # of the others it knows how many there are
        setting = Setting(tuple(resolved["shape"]), resolved["classes"], names, (), config.seed)
        federated = federated_of(config, setting)[1]
        with safe_open(folder / DATA, "pt") as file:
            about, pool = file.metadata(), tuple(file.get_tensor(name) for name in ("x", "y"))
        samples = Samples(pool, torch.arange(len(pool[1])), len(pool[1]))
        name, who = about["name"], int(about["who"])
        return cls(folder, resolved["digest"], name, who, samples, federated, work_of(config), config.seed)

    def answer(self, message: bytes) -> bytes:
        """Do what a message asks: the same again for the same message. Raises UserError for one of another run."""
        header, tensors = wire.unpack(message)
        if header.run != self.run:
            raise UserError(
                f"client {self.name!r} is of run {self.run}, and the message of run {header.run}: send it "
                "to a client of that run."
            )
        if header.operation not in OPERATIONS:
            known = ", ".join(OPERATIONS)
            raise UserError(f"client {self.name!r} knows no operation {header.operation!r}: use {known}.")
        shared, sent = self._asked(header, tensors)
        each = local_work(
            self.federated,
            self.samples,
            self.name,
            self.who,
            header.accepted,
            self._recall(header),
            self.work,
            self.seed,
            header.round,
            sent,
        )
        reply = getattr(self.federated, header.operation)(Loop(), shared, each)
        if not bool(reply.finite):
            return wire.pack(header._replace(operation=NOT_FINITE), {})
        if reply.row:
            files.atomic_write(memory(self.folder, header.round), wire.save(reply.row))
        weight = getattr(reply.said, "weight", None)
        number = 1.0 if weight is None else float(weight.x)
        return wire.pack(header._replace(number=number), up(self.federated, reply.said, header.round))

    def _asked(self, header: Header, tensors: dict[str, Tensor]) -> tuple[Shared, Any]:
        """(what all were sent, what only this client was). A pipeline's first phase is kept for its last, in a file."""
        if header.operation == "train":
            return arrived(self.federated, tensors, header.round, header.number, header.accepted), ()
        phi, own, path = tensors["model"], (), self.folder / PHASE
        if header.operation == "embed":
            files.atomic_write(path, wire.save({"phi": phi, "round": torch.tensor(header.round)}))
        else:
            first = wire.load(path.read_bytes()) if path.exists() else {"round": torch.tensor(-1)}
            if int(first["round"]) != header.round:
                raise UserError(f"client {self.name!r} lacks the first phase of round {header.round + 1}: send it.")
            phi, own = first["phi"], phi
        return Shared(header.round, header.number, phi, self.federated.initial_buffers, {}), own

    def _recall(self, header: Header) -> dict[str, Tensor]:
        """The memory of the round that was accepted; those that nobody can ask for again are dropped."""
        needed = {memory(self.folder, r) for r in (header.accepted, header.older, header.newer, header.round)}
        for path in set(self.folder.glob("round-*")) - needed:
            files.remove(path)
        if header.accepted < 0:
            return self.federated.fresh_row()
        return recall(self.folder, header.accepted, list(self.federated.fresh_row()))


def recall(folder: Path, round: int, names: list[str]) -> dict[str, Tensor]:
    """A client's memory of that round by these names, or by number as in folders from before pieces had names; raises
    UserError where it is not there.
    """
    try:
        row = wire.load(memory(folder, round).read_bytes())
        return row if row.keys() == set(names) else dict(zip(names, (row[n] for n in numbered(names)), strict=True))
    except OSError:
        raise UserError(
            f"{folder}: the client's memory of round {round + 1} is not there: resume from an earlier "
            "checkpoint, or start again."
        ) from None


def serve(pipe: Any, text: str, folder: str) -> None:
    """Answer messages until the other side ends: nothing but bytes enters or leaves."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends its clients
    torch.set_num_threads(1)
    client = None
    with suppress(EOFError, OSError):
        while True:
            message = pipe.recv_bytes()
            try:
                client = client or Client.build(text, Path(folder))
                answer = client.answer(message)
            except UserError as error:
                answer = _instead(REFUSED, str(error))
            except Exception:
                answer = _instead(FAILED, traceback.format_exc())
            pipe.send_bytes(answer)


def _instead(why: str, text: str) -> bytes:
    letters = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    return wire.pack(Header("", why, 0, -1, -1, -1, 0.0), {"text": letters})
