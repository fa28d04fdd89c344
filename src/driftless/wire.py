"""Messages as bytes: a fixed header and tensors as safetensors. Operations go by name; nothing is ever unpickled."""

from __future__ import annotations

import struct
from typing import NamedTuple

import safetensors.torch
import torch
from torch import Tensor

MAGIC = b"drift1"
HEADER = struct.Struct("<6s16s16sqqqdQ")  # magic, run, operation, round, accepted, keep, number, length of the body


class Header(NamedTuple):
    """Who speaks of what: the run's digest, the operation, the round, and the last round of this client that was counted."""

    run: str  # 16 characters
    operation: str  # at most 16
    round: int
    accepted: int  # the last round of this client that was counted, -1 for none
    keep: int  # the oldest counted round that may be asked for again
    number: float  # the step size going down, the weight's place going up


def pack(header: Header, tensors: dict[str, Tensor]) -> bytes:
    """One message. Its length follows from the tensors' names, shapes and types alone."""
    body = safetensors.torch.save({k: v.detach().contiguous() for k, v in tensors.items()})
    run, operation = header.run.encode()[:16].ljust(16), header.operation.encode().ljust(16)
    return HEADER.pack(MAGIC, run, operation, header.round, header.accepted, header.keep, header.number, len(body)) + body


def unpack(data: bytes) -> tuple[Header, dict[str, Tensor]]:
    """The inverse of `pack`; raises ValueError for bytes that are no message."""
    magic, run, operation, round, accepted, keep, number, length = HEADER.unpack_from(data)
    if magic != MAGIC or len(data) != HEADER.size + length:
        raise ValueError("these bytes are no whole message")
    header = Header(run.decode().strip(), operation.decode().strip(), round, accepted, keep, number)
    return header, safetensors.torch.load(data[HEADER.size :])


def length(tensors: dict[str, Tensor]) -> int:
    """The bytes of a message with these tensors, without making it from real ones."""
    empty = {k: torch.zeros_like(v) for k, v in tensors.items()}
    return len(pack(Header("", "", 0, 0, 0, 0.0), empty))
