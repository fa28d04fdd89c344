"""The folder of a client in a process of its own: every file in it is a message with its checksum.

`data.message` is the client's data, written once; a real client would have its data already.
`phase.message` is the first phase of a pipeline, stored until the last. `round-000012-89abcdef.message` is the client's
memory of one round, named by the round and its checksum, so that no memory ever overwrites another. On a node,
`model.safetensors` is the model that it predicts with, by the names of its module.
"""

from __future__ import annotations

import re
from pathlib import Path

from torch import Tensor

from apiece.engine import messages
from apiece.engine.messages import Header
from apiece.errors import UserError
from apiece.storage.row_format import Row, StoreError
from apiece.storage.trees import numbered
from apiece.system import files

DATA, PHASE = "data.message", "phase.message"
MODEL = "model.safetensors"  # what the client predicts with, since it was last measured
MEMORY = re.compile(r"round-(\d+)-[0-9a-f]{8}\.message(\.tmp)?")
EARLIER = ": `apiece resume` continues from the last checkpoint whose memories are whole"


def deliver(folder: Path, run: str, client: int, name: str, x: Tensor, y: Tensor) -> None:
    """Put a client's data into its folder."""
    files.make_folder(folder)
    about = Header(run, "data", client, -1)
    files.atomic_write(folder / DATA, messages.pack(about, {"x": x, "y": y, "name": messages.letters(name)}))


def data(folder: Path, run: str, shape: list[int]) -> tuple[int, str, tuple[Tensor, Tensor]]:
    """(a client's number, its name, its samples); StoreError if they are missing, damaged, or of another run."""
    path, advice = folder / DATA, ": remove it and resume, and it is written anew"
    _, header, tensors = read(path, "the client's data", run, advice)
    if tensors.keys() != {"x", "y", "name"}:
        raise StoreError(f"{path}: the client's data is {sorted(tensors)}, not name, x and y{advice}.")
    x, y = tensors["x"], tensors["y"]
    if list(x.shape[1:]) != shape or x.shape[:1] != y.shape[:1]:
        raise StoreError(
            f"{path}: the client's data is of the shapes {list(x.shape)} and {list(y.shape)}, where samples of the "
            f"shape {shape} and as many labels are expected{advice}."
        )
    return header.client, messages.text(tensors["name"]), (x, y)


def remember(folder: Path, header: Header, row: Row) -> int:
    """Write the memory that belongs to a message with this header, beside all others, and return its checksum."""
    message = messages.pack(header, row)
    files.atomic_write(_memory(folder, header.round, messages.checksum(message)), message)
    return messages.checksum(message)


def recall(folder: Path, run: str, client: int, round: int, checksum: int, advice: str = EARLIER) -> tuple[Header, Row]:
    """A client's memory of that round, and the header of the message that it was made for; raises StoreError if it is
    missing or damaged.
    """
    path, what = _memory(folder, round, checksum), f"the client's memory of round {round + 1}"
    found, header, row = read(path, what, run, advice)
    if (header.client, header.round, found) != (client, round, checksum):
        raise StoreError(
            f"{path}: {what} is that of client {header.client} in round {header.round + 1}, with the checksum "
            f"{found:08x}{advice}."
        )
    return header, row


def remove_before(folder: Path, round: int, needed: set[int]) -> None:
    """Remove the memories from before that round, except those of needed rounds, and files that were never whole."""
    for path in folder.iterdir():
        if name := MEMORY.fullmatch(path.name):
            before = int(name[1]) < round and int(name[1]) not in needed
            if before or name[2]:
                files.remove(path)


def adopt(folder: Path, run: str, client: int, rounds: list[int], names: list[str]) -> list[tuple[int, int]]:
    """Convert memories of these rounds from before they had checksums, or names for the state of pieces, to the present
    form. Gives each round with its checksum.
    """
    made = []
    for place, round in enumerate(rounds):
        path = folder / f"round-{round:06d}.safetensors"
        try:
            row = messages.load(path.read_bytes())
            row = row if row.keys() == set(names) else dict(zip(names, (row[n] for n in numbered(names)), strict=True))
        except Exception as error:  # the parser may raise anything for a damaged file
            raise StoreError(f"{path}: the client's memory of round {round + 1} is not whole.") from error
        before = {"accepted": rounds[place - 1], "older": rounds[0]} if place else {}
        made.append((round, remember(folder, Header(run, "train", client, round, **before), row)))
    return made


def read(path: Path, what: str, run: str, advice: str) -> tuple[int, Header, dict[str, Tensor]]:
    """The checksum and content of a client's file; StoreError if it is missing, damaged, or of another run."""
    try:
        message = path.read_bytes()
        header, tensors = messages.unpack(message)
    except OSError:
        raise StoreError(f"{path}: {what} is not there{advice}.") from None
    except UserError:
        raise StoreError(f"{path}: {what} is damaged, as its checksum differs{advice}.") from None
    if header.run != run:
        raise StoreError(f"{path}: {what} is of run {header.run}, and this is run {run}{advice}.")
    return messages.checksum(message), header, tensors


def _memory(folder: Path, round: int, checksum: int) -> Path:
    return folder / f"round-{round:06d}-{checksum:08x}.message"
