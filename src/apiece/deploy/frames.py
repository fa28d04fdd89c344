"""What travels between coordinator and node: a head, which is JSON, and a body, which is a message of bytes.

    down    {"ask": "facts"}                                         what data have you?
            {"ask": "answer", "run", "to", "who"} + message          do what the message asks, in the run of that name
            the same with "text"                                     where the node may not know the run's text yet
    up      {"is": "facts", ...}, {"is": "answer"} + message, {"is": "stranger"} (I need the run's text first),
            {"is": "refused", "why": ...}
"""

from __future__ import annotations

import json
import struct
from typing import Any

from apiece.errors import UserError

MAGIC, LENGTH, MOST = b"apiece1\n", struct.Struct("<I"), 1 << 22  # bytes of a head
Head = dict[str, Any]


def pack(head: Head, body: bytes | memoryview = b"") -> bytes:
    """One frame."""
    said = json.dumps(head, separators=(",", ":")).encode()
    return b"".join((MAGIC, LENGTH.pack(len(said)), said, body))


def unpack(frame: bytes) -> tuple[Head, memoryview]:
    """The inverse of `pack`, without a copy of the body; raises UserError for bytes that are no frame."""
    start = len(MAGIC) + LENGTH.size
    try:
        (length,) = LENGTH.unpack_from(frame, len(MAGIC))
        if frame.startswith(MAGIC) and length <= min(MOST, len(frame) - start):
            head = json.loads(frame[start : start + length])
            if isinstance(head, dict):
                return head, memoryview(frame)[start + length :]
    except (ValueError, struct.error, RecursionError):
        pass
    raise UserError(f"these {len(frame)} bytes are no frame of a deployed run: the other side has another version.")
