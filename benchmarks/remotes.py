"""Peers in environments of their own: installed if they are missing, started, asked over a pipe, and ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import venv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from timing import cpu_of
from torch import Tensor

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parent / ".peers"
CORES = 2
TORCH = torch.__version__.partition("+")[0]
REQUIREMENTS = {
    "pfl": ["pfl", f"torch=={TORCH}"],
    "flwr": ["flwr[simulation]==1.41.*", f"torch=={TORCH}"],
    "fluke": ["fluke-fl", f"torch==={TORCH}"],  # the index's own build, for which its torchvision is made
}


class Peer(NamedTuple):
    """How to start a peer: its environment, script and arguments, intra-op threads, and the cores that it may fill."""

    environment: str
    script: str
    argument: int
    threads: int
    cores: int


PEERS = {
    "pfl, 1 thread": Peer("pfl", "pfl_round.py", 1, 1, 1),
    f"pfl, {CORES} threads": Peer("pfl", "pfl_round.py", CORES, CORES, CORES),
    f"pfl, {CORES} processes": Peer("pfl", "pfl_together.py", CORES, 1, CORES),
    f"flwr, {CORES} workers": Peer("flwr", "flwr_round.py", CORES, 1, CORES),
    f"fluke, {CORES} threads": Peer("fluke", "fluke_round.py", CORES, CORES, CORES),
}


def environment(name: str) -> Path:
    """The interpreter of a peer's environment, which is made if it does not exist."""
    folder = ENVIRONMENTS / name
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *REQUIREMENTS[name]], check=True)
        ready.touch()
    return python


class Remote:
    """A peer's process, which runs a round on request."""

    def __init__(self, peer: Peer, folder: Path, log: Path):
        self.peer, self.folder = peer, folder
        command = [environment(peer.environment), HERE / "peers" / peer.script, folder, str(peer.argument)]
        told = {"PYTHONPATH": str(HERE), "OMP_NUM_THREADS": str(peer.threads)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log.open("w")}
        self.process = subprocess.Popen(command, **pipes, env=os.environ | told, text=True, bufsize=1)
        self.log = log
        try:
            self.versions: dict[str, str] = self._answer()
        except RuntimeError:
            self.end()
            raise

    def round(self, save: Path | None = None, instrumented: bool = False) -> dict[str, Any]:
        """Ask for a round, and wait for it."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"save": save and str(save), "instrumented": instrumented}) + "\n")
        return self._answer()

    def check(self) -> tuple[Tensor, float, int]:
        """A first round, and an instrumented one: (its model, share of compute, gradients taken)."""
        self.round()
        saved = self.folder / "made.npy"
        said = self.round(saved, instrumented=True)
        workers = self.peer.cores if self.peer.threads == 1 else 1
        return torch.from_numpy(np.load(saved)), said["compute"] / (said["wall"] * workers), said["steps"]

    def cpu(self) -> float:
        """CPU seconds of the process and all its descendants so far."""
        total = 0.0
        for process in family(self.process.pid):
            with contextlib.suppress(OSError):  # it has ended since
                total += cpu_of(process)
        return total

    def end(self) -> None:
        """Kill the process and its descendants."""
        for process in family(self.process.pid):
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        self.process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("\n".join(self.log.read_text().splitlines()[-3:]))
        return json.loads(line)


def family(process: int) -> list[int]:
    """The process and its descendants."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    out = [process]
    for one in out:
        out += children.get(one, [])
    return out
