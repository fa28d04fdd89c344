"""Messages as bytes: a fixed header and tensors as safetensors. Operations go by name; nothing is ever unpickled."""

from __future__ import annotations

import struct
from typing import NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from driftless.device import to_host
from driftless.errors import UserError

MAGIC = b"drift1"
HEADER = struct.Struct("<6s16s16sqqqqdQ")  # magic, then the fields of Header, then the length of the body


class Header(NamedTuple):
    """Who speaks of what: the run's digest, the operation, the round, and which rounds of this client were counted."""

    run: str  # 16 characters
    operation: str  # at most 16
    round: int
    accepted: int  # the last round of this client that was counted, -1 for none
    older: int  # the last one counted as of the older of the server's last two checkpoints: it may be asked for again
    newer: int  # and as of the newer one
    number: float  # the step size going down, the weight's place going up


def pack(header: Header, tensors: dict[str, Tensor]) -> bytes:
    """One message. Its length follows from the tensors' names, shapes and types alone."""
    body, (run, operation, *numbers) = save(tensors), header
    return HEADER.pack(MAGIC, run.encode()[:16].ljust(16), operation.encode().ljust(16), *numbers, len(body)) + body


def unpack(data: bytes) -> tuple[Header, dict[str, Tensor]]:
    """The inverse of `pack`; raises UserError for bytes that are no message."""
    try:
        magic, run, operation, *numbers, length = HEADER.unpack_from(data)
        if magic == MAGIC and len(data) == HEADER.size + length:
            return Header(run.decode().strip(), operation.decode().strip(), *numbers), load(data[HEADER.size :])
    except (struct.error, UnicodeDecodeError, SafetensorError):
        pass
    raise UserError(f"these {len(data)} bytes are no whole message: send it again.")


def save(tensors: dict[str, Tensor]) -> bytes:
    """Tensors by name as bytes; two that share their memory are written twice."""
    whole = torch.contiguous_format
    return safetensors.torch.save({k: v.clone(memory_format=whole) for k, v in to_host(tensors).items()})


def load(data: bytes) -> dict[str, Tensor]:
    """The inverse of `save`: each tensor in memory of its own, aligned as usual: the last bit can depend on it."""
    return {k: v.clone() for k, v in safetensors.torch.load(data).items()}


def length(tensors: dict[str, Tensor]) -> int:
    """The bytes of a message with these tensors, without making it from real ones."""
    empty = {k: torch.zeros(v.shape, dtype=v.dtype) for k, v in tensors.items()}
    return len(pack(Header("", "", 0, 0, 0, 0, 0.0), empty))
