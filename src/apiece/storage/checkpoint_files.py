"""Where a run's checkpoints lie, and what their metadata say: read without torch, for reports."""

from __future__ import annotations

import json
import re
from pathlib import Path


def path_of(folder: str | Path, number: int) -> Path:
    """The file of the checkpoint after `number` rounds."""
    return Path(folder) / "checkpoints" / f"round-{number:06d}.safetensors"


def numbers(folder: str | Path) -> list[int]:
    """The numbers of the checkpoint files in the folder, whole or not, in order."""
    names = (path.name for path in path_of(folder, 0).parent.glob("round-*.safetensors"))
    return sorted(int(match[1]) for name in names if (match := re.fullmatch(r"round-(\d{6,})\.safetensors", name)))


def done(folder: str | Path) -> int:
    """The number of rounds in the newest checkpoint, 0 if there is none."""
    return max(numbers(folder), default=0)


def metadata(data: bytes) -> dict[str, str]:
    """The metadata at the head of a safetensors file; raises ValueError and the like for other bytes."""
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]


def head(path: Path) -> bytes:
    """The bytes of a safetensors file before its tensors."""
    with path.open("rb") as file:
        length = file.read(8)
        return length + file.read(min(int.from_bytes(length, "little"), path.stat().st_size))
