"""The server's part of a run on disk: one file per checkpoint, whole or absent; the last two are kept.

`checkpoints/round-000012.safetensors` holds the tensors after twelve rounds; its metadata hold the run, the number,
further strings of the caller, and the checksum of all of it. To resume:

    found, refused = latest(folder, run)
    number = found.number if found else 0
    set_aside(folder, number)
    rows.restore(number, digest)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import safetensors.torch
import torch
from torch import Tensor

from apiece.errors import UserError
from apiece.storage.checkpoint_files import metadata, numbers, path_of
from apiece.system import files
from apiece.system.device import to_host, to_numpy

OURS = ("run", "number", "sha256")  # the metadata that are not `about`


class Checkpoint(NamedTuple):
    """The server after `number` rounds."""

    number: int
    tensors: dict[str, Tensor]
    about: dict[str, str]


def write(folder: str | Path, number: int, tensors: Mapping[str, Tensor], about: Mapping[str, str], run: str) -> Path:
    """Write checkpoint `number` of a run's folder and return its path; then remove all others but the one before.

    Raises `UserError` if the disk refuses; existing checkpoints are then unchanged.
    """
    assert not set(OURS) & set(about), f"{OURS} are the checkpoint's own words"
    path = path_of(folder, number)
    owned = {name: tensor.contiguous().clone() for name, tensor in to_host(dict(tensors)).items()}
    about = {**about, "run": run, "number": str(number)}
    data = safetensors.torch.save(owned, {**about, "sha256": _checksum(owned, about)})
    files.make_folder(path.parent)
    files.atomic_write(path, data)
    for old in sorted(other for other in numbers(folder) if other < number)[:-1]:
        files.remove(path_of(folder, old))
    return path


def read(path: str | Path, run: str) -> Checkpoint:
    """Read one; `UserError` for a file that is torn, damaged in any bit, or of another run."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: the checkpoint could not be read: {error.strerror or error}.") from error
    try:
        about = metadata(data)
        tensors, checksum = safetensors.torch.load(data), about.pop("sha256")
        whole = checksum == _checksum(tensors, about)
        number, of = int(about.pop("number")), about.pop("run")
    except Exception as error:  # the parsers may raise anything for a damaged file
        raise UserError(f"{path}: is no whole checkpoint ({error}).") from error
    if not whole:
        raise UserError(f"{path}: the checkpoint is damaged (its checksum differs).")
    if of != run:
        raise UserError(f"{path}: the checkpoint belongs to run {of}, not to {run}; resume with that run's settings.")
    return Checkpoint(number, tensors, about)


def latest(
    folder: str | Path, run: str, most: int | None = None, agree: Callable[[Checkpoint], None] | None = None
) -> tuple[Checkpoint | None, list[str]]:
    """The newest whole checkpoint of this run, or `None`, and why each newer one was refused. Only checkpoints of at
    most `most` rounds are taken, and only if `agree` raises no UserError for them.

    `None` with refusals means that all checkpoints of the run are lost, not that it has not begun.
    """
    refused: list[str] = []
    for number in reversed([n for n in numbers(folder) if most is None or n <= most]):
        try:
            found = read(path_of(folder, number), run)
            if found.number != number:
                raise UserError(
                    f"{path_of(folder, number)}: holds checkpoint {found.number}; give it its own name back."
                )
            if agree is not None:
                agree(found)
        except UserError as error:
            refused.append(str(error))
            continue
        return found, refused
    return None, refused


def set_aside(folder: str | Path, number: int) -> None:
    """Rename checkpoints above `number`, which the run now discards, so that no later start uses them.

    This must precede the restoration of the rows, which drops what those checkpoints would need.
    """
    for newer in (other for other in numbers(folder) if other > number):
        path = path_of(folder, newer)
        files.replace(path, path.with_name(path.name + ".left"))
    if (there := path_of(folder, number).parent).is_dir():
        files.sync_folder(there)  # for renames of now, or of a process that died before the flush


def _checksum(tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> str:
    """SHA-256 of every name, type, shape and byte, and of the metadata."""
    shapes = [(name, str(tensors[name].dtype), list(tensors[name].shape)) for name in sorted(tensors)]
    total = hashlib.sha256(json.dumps([dict(sorted(about.items())), shapes]).encode())
    for name in sorted(tensors):
        total.update(to_numpy(tensors[name].reshape(-1).view(torch.uint8)).data)
    return total.hexdigest()
