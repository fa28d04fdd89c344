"""The training that every contender of `training.py` gets, written with torch alone: peers import it in their own
environments.

A problem lies in a folder: `problem.json`, `x.npy` [N, n, C, H, W], `y.npy` [N, n] and `initial.npy` [D]. A client's
samples are stored in the order of its batches, so that whoever takes them in this order takes the same steps. A peer
answers each line of JSON with one line: {"save": file or null, "instrumented": bool} -> {"wall", "compute", "steps"}.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def simple_cnn(channels: int = 3, side: int = 32, classes: int = 10) -> nn.Sequential:
    """The network of pfl's CIFAR-10 benchmark: conv3x3(32), conv3x3(64), pool, linear(128), linear(C), without its two
    dropouts (each library would draw other masks). Parameters: 1,626,442.
    """
    features = 64 * ((side - 4) // 2) ** 2
    model = nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(features, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )
    for layer in model:
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.xavier_uniform_(layer.weight)
    return model


def _two_convolutions(widths: tuple[int, int], channels: int, side: int, classes: int) -> nn.Sequential:
    """conv5x5, pool, conv5x5, pool, linear(120, 84, C), each with ReLU where papers have it."""
    one, two = widths
    features = two * (((side - 4) // 2 - 4) // 2) ** 2
    convolutions = (nn.Conv2d(channels, one, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(one, two, 5), nn.ReLU())
    dense = (nn.Linear(features, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes))
    return nn.Sequential(*convolutions, nn.MaxPool2d(2), nn.Flatten(), *dense)


def lenet(channels: int = 1, side: int = 28, classes: int = 10) -> nn.Sequential:
    """PeFLL's LeNet: conv5x5(16), pool, conv5x5(32), pool, linear(120, 84, C). Parameters: 85,822 for 1x28x28."""
    return _two_convolutions((16, 32), channels, side, classes)


def small_lenet(channels: int = 1, side: int = 28, classes: int = 10) -> nn.Sequential:
    """FedCOG's network: the same with convolutions of 6 and 16. Parameters: 44,426 for 1x28x28."""
    return _two_convolutions((6, 16), channels, side, classes)


def cnn(channels: int = 1, side: int = 28, classes: int = 10) -> nn.Sequential:
    """apiece's `cnn`: conv3x3(16), pool, conv3x3(32), pool, linear(64, C), with ReLU behind the pools, as there.
    Parameters: 105,866 for 1x28x28.
    """
    one, two = nn.Conv2d(channels, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
    convolutions = (one, nn.MaxPool2d(2), nn.ReLU(), two, nn.MaxPool2d(2), nn.ReLU())
    dense = (nn.Linear(32 * (side // 4) ** 2, 64), nn.ReLU(), nn.Linear(64, classes))
    return nn.Sequential(*convolutions, nn.Flatten(), *dense)


def mlp(channels: int = 1, side: int = 28, classes: int = 10) -> nn.Sequential:
    """linear(200, 200, C). Parameters: 199,210 for 1x28x28."""
    hidden = (nn.Linear(channels * side**2, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU())
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(200, classes))


def softmax_regression(channels: int = 1, side: int = 28, classes: int = 10) -> nn.Sequential:
    """linear(C). Parameters: 7,850 for 1x28x28."""
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * side**2, classes))


MODELS = {model.__name__: model for model in (simple_cnn, lenet, small_lenet, cnn, mlp, softmax_regression)}


class Problem(NamedTuple):
    """A number of clients with equally many samples; per round the first ones take one pass over theirs."""

    model: str
    channels: int
    side: int
    clients: int
    cohort: int
    samples: int
    batch: int
    lr: float
    classes: int = 10

    @property
    def steps(self) -> int:
        """The steps of all clients of one round."""
        return self.cohort * -(-self.samples // self.batch)


class Given(NamedTuple):
    """A problem and its data, as mapped from the folder."""

    problem: Problem
    x: np.ndarray
    y: np.ndarray
    initial: Tensor

    def module(self) -> nn.Sequential:
        """A new module at the initial weights."""
        problem = self.problem
        return at(MODELS[problem.model](problem.channels, problem.side, problem.classes), self.initial)

    def client(self, number: int) -> tuple[Tensor, Tensor]:
        """The samples of one client."""
        return torch.from_numpy(self.x[number]), torch.from_numpy(self.y[number])


def write(folder: Path, given: Given) -> None:
    """Write a problem to a folder."""
    (folder / "problem.json").write_text(json.dumps(given.problem._asdict()))
    for name, array in (("x", given.x), ("y", given.y), ("initial", given.initial.numpy())):
        np.save(folder / f"{name}.npy", array)


@lru_cache
def read(folder: Path) -> Given:
    """A problem as it was written, read once per process; its arrays are mapped, and nobody changes them."""
    problem = Problem(**json.loads((folder / "problem.json").read_text()))
    x, y, initial = (np.load(folder / f"{name}.npy", mmap_mode="c") for name in ("x", "y", "initial"))
    return Given(problem, x, y, torch.from_numpy(initial))


def flat(parameters: Any) -> Tensor:
    """Parameters in the order of the module, as one new vector [D]."""
    return torch.cat([p.detach().reshape(-1) for p in parameters])


def at(module: Any, vector: Tensor) -> Any:
    """The module with its parameters set to this vector [D]."""
    with torch.no_grad():
        for p, part in zip(module.parameters(), vector.split([p.numel() for p in module.parameters()])):
            p.copy_(part.view(p.shape))
    return module


# --- what is compute ------------------------------------------------------------------------------
class Stopwatch:
    """The seconds spent in the functions that it has wrapped, over all threads, and the number of calls of each."""

    def __init__(self) -> None:
        self.seconds: list[float] = []  # appended to by many threads
        self.calls: dict[str, list[None]] = {}

    def wrap(self, function: Callable, name: str) -> Callable:
        """The function, timed; a call inside a timed one is not counted again."""
        calls, inside = self.calls.setdefault(name, []), _INSIDE

        def timed(*args: Any, **kwargs: Any) -> Any:
            if getattr(inside, "busy", False):
                return function(*args, **kwargs)
            inside.busy, began = True, time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                inside.busy = False
                self.seconds.append(time.perf_counter() - began)
                calls.append(None)

        return timed

    @contextmanager
    def on(self, *places: tuple[Any, str]) -> Iterator[Stopwatch]:
        """Time these functions, (owner, name), until the context ends."""
        originals = [(owner, name, getattr(owner, name)) for owner, name in places]
        for owner, name, function in originals:
            setattr(owner, name, self.wrap(function, name))
        try:
            yield self
        finally:
            for owner, name, function in originals:
                setattr(owner, name, function)

    def steps(self) -> int:
        """The number of gradients taken."""
        return sum(len(self.calls.get(name, ())) for name in GRADIENTS)


_INSIDE = threading.local()
TRAINING = (
    (nn.Sequential, "forward"),
    (F, "cross_entropy"),
    (torch.Tensor, "backward"),
    (torch.autograd, "grad"),
    (torch, "_foreach_add_"),
    (torch.optim.SGD, "step"),
)
GRADIENTS = ("backward", "grad")  # one or the other is called once per step


# --- a peer's side of the conversation ------------------------------------------------------------
class Conversation:
    """One round per request of the benchmark: a peer calls `wait`, runs one round, calls `answer`, and so on.

    Anything else that a library prints goes to stderr.
    """

    def __init__(self, **versions: str) -> None:
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self._say(versions)

    def wait(self) -> dict[str, Any]:
        """Wait for the next request and return it. The process ends when the benchmark has closed the pipe."""
        line = sys.stdin.readline()
        if not line:
            os._exit(0)
        self._asked, self._watch = json.loads(line), Stopwatch()
        self._timing = self._watch.on(*TRAINING if self._asked["instrumented"] else ())
        self._timing.__enter__()
        self._began = time.perf_counter()
        return self._asked

    def answer(self, made: Callable[[], Tensor], compute: float = 0.0, steps: int = 0) -> None:
        """End the round: send its time, the model it made [D], and what was computed elsewhere."""
        wall = time.perf_counter() - self._began
        self._timing.__exit__(None, None, None)
        if self._asked["save"]:
            np.save(self._asked["save"], made().numpy())
        compute, steps = compute + sum(self._watch.seconds), steps + self._watch.steps()
        self._say({"wall": wall, "compute": compute, "steps": steps})

    def _say(self, answer: dict[str, Any]) -> None:
        self._out.write(json.dumps(answer) + "\n")
