"""Whether a deployed run is the run of `--lift wired` to the bit: the server's whole state, what each client remembers,
and the ledger of every round.
"""

from __future__ import annotations

import json
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from apiece.engine import messages
from apiece.experiment.watchers import LEDGER
from apiece.storage.checkpoint_files import done, path_of
from apiece.wired.client_folder import MEMORY

Tensors = dict[str, Tensor]


def compared(one: Path, other: Path) -> list[str]:
    """In what two run folders differ; nothing if they are the same."""
    rounds = [[json.loads(line) for line in (p / "metrics.jsonl").read_text().splitlines()] for p in (one, other)]
    if len(rounds[0]) != len(rounds[1]):
        return [f"they have {len(rounds[0])} and {len(rounds[1])} rounds"]
    found = [
        f"round {a['round']}: {name} is {a.get(name)} and {b.get(name)}"
        for a, b in zip(*rounds, strict=True)
        for name in [*LEDGER, "cohort", "answered", "skipped"]
        if a.get(name) != b.get(name)
    ]
    states = [safetensors.torch.load_file(path_of(path, done(path))) for path in (one, other)]
    return found + [f"the server's state differs in {name}" for name in differing(*states)]


def remembered(one: Path, other: Path) -> list[str]:
    """In what the last memories of a client differ, which lie in these two folders; nothing if they are the same."""
    memories = [last_memory(folder) for folder in (one, other)]
    return [f"{one.name} remembers another {name}" for name in differing(*memories)]


def last_memory(folder: Path) -> Tensors:
    """The newest memory in a client's folder, {} if it has none, as of a client that was never asked."""
    if not folder.is_dir():
        return {}
    paths = sorted(path for path in folder.iterdir() if (name := MEMORY.fullmatch(path.name)) and not name[2])
    return messages.unpack(paths[-1].read_bytes())[1] if paths else {}


def differing(one: Tensors, other: Tensors) -> list[str]:
    """The names of tensors that are not the same to the bit, or that only one side has."""
    same = [n for n in one.keys() & other.keys() if one[n].dtype == other[n].dtype and torch.equal(one[n], other[n])]
    return sorted((one.keys() | other.keys()) - set(same))
