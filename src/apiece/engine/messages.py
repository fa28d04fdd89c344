"""Messages as bytes: a header, a checksum and tensors as safetensors. Operations go by name; nothing is unpickled.

The checksum finds every change that happens by accident. A change that somebody makes on purpose, with a checksum to
match, is found where it does not fit what the receiver expects, and nowhere else: messages bear no signature.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import safetensors.torch
import torch
from torch import Tensor

from apiece.engine.state import finite
from apiece.errors import UserError
from apiece.system.device import to_host
from apiece.system.typed import numbers

MAGIC = b"drift2"
HEADER = struct.Struct("<6s16s16sqqqIqqdQ")  # magic, then the fields of Header, then the length of the body
CHECKSUM = struct.Struct("<I")  # of the header and the body; it stands between them


class Header(NamedTuple):
    """Who speaks of what: the run's digest, the operation, the client, the round, and which of its rounds counted."""

    run: str  # 16 characters
    operation: str  # at most 16
    client: int  # whom the message is for, or whose answer it is
    round: int
    accepted: int = -1  # the last round of this client that was counted, -1 for none
    memory: int = 0  # the checksum of a memory: going down of the one of that round, going up of the one just made
    older: int = -1  # the last round counted as of the older of the server's last two checkpoints: it may be asked for
    newer: int = -1  # and as of the newer one
    number: float = 0.0  # the step size going down, the weight's place going up


def pack(header: Header, tensors: Mapping[str, Tensor]) -> bytes:
    """One message. Its length follows from the tensors' names, shapes and types alone."""
    body, (run, operation, *numbers) = save(tensors), header
    head = HEADER.pack(MAGIC, run.encode()[:16].ljust(16), operation.encode().ljust(16), *numbers, len(body))
    return b"".join((head, CHECKSUM.pack(zlib.crc32(body, zlib.crc32(head))), body))


def unpack(data: bytes | memoryview) -> tuple[Header, dict[str, Tensor]]:
    """The inverse of `pack`; raises UserError for bytes that are no message, or not as they were packed."""
    try:
        magic, run, operation, *numbers, length = HEADER.unpack_from(data)
        body = bytes(memoryview(data)[HEADER.size + CHECKSUM.size :])
        if (
            magic == MAGIC
            and len(body) == length
            and checksum(data) == zlib.crc32(body, zlib.crc32(data[: HEADER.size]))
        ):
            return Header(run.decode().strip(), operation.decode().strip(), *numbers), load(body)
    except Exception:  # whatever bytes of somebody else's make of the parsers
        pass
    raise UserError(f"these {len(data)} bytes are no whole message: send it again.")


def checksum(message: bytes | memoryview) -> int:
    """The checksum that a message bears."""
    return CHECKSUM.unpack_from(message, HEADER.size)[0]


def misfit(tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> str:
    """Which of these tensors is not as expected (names, shapes and types `like` those, every number finite), in a
    clause; nothing where all are.
    """
    if tensors.keys() != like.keys():
        return f"it holds the tensors {sorted(tensors)} where {sorted(like)} are expected"
    for name, leaf in tensors.items():
        if (leaf.shape, leaf.dtype) != (like[name].shape, like[name].dtype):
            return f"its tensor {name!r} is {_form(leaf)} where {_form(like[name])} is expected"
        if not bool(finite(leaf)):
            return f"its tensor {name!r} holds a number that is not finite"
    return ""


def _form(leaf: Tensor) -> str:
    return f"{str(leaf.dtype).removeprefix('torch.')} {list(leaf.shape)}"


def letters(text: str) -> Tensor:
    """A text as a tensor."""
    return torch.frombuffer(bytearray(text.encode() or b" "), dtype=torch.uint8)


def text(letters: Tensor) -> str:
    """The inverse of `letters`, whatever the numbers."""
    return bytes(numbers(letters.flatten().view(torch.uint8))).decode(errors="replace")


def save(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors by name as bytes; two that share their memory are written twice."""
    apart, seen = dict[str, Tensor](), set[int]()
    for name, leaf in to_host(dict(tensors)).items():  # a large tensor is copied only where it must be
        place = leaf.untyped_storage().data_ptr()
        apart[name] = leaf.clone(memory_format=torch.contiguous_format) if place in seen else leaf.contiguous()
        seen.add(place)
    return safetensors.torch.save(apart)


def load(data: bytes) -> dict[str, Tensor]:
    """The inverse of `save`: each tensor in memory of its own, aligned as usual: the last bit can depend on it."""
    return {k: v.clone() for k, v in safetensors.torch.load(data).items()}


def length(tensors: Mapping[str, Tensor]) -> int:
    """The bytes of a message with these tensors, without making it from real ones."""
    return _length(tuple((name, leaf.shape, leaf.dtype) for name, leaf in tensors.items()))


@cache
def _length(form: tuple[tuple[str, torch.Size, torch.dtype], ...]) -> int:
    """The same of names, shapes and types, made once: for a large model that takes a tenth of a second."""
    empty = {name: torch.zeros(shape, dtype=dtype) for name, shape, dtype in form}
    return HEADER.size + CHECKSUM.size + len(save(empty))
