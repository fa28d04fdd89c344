"""Driving the engine by hand: cohorts, batches and step sizes written down by the test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from apiece.algebra.place import Answer
from apiece.data.federation import Federation
from apiece.engine.clients import Clients
from apiece.engine.federated import Federated
from apiece.engine.setup import Setup
from apiece.engine.state import Plan, Server
from apiece.lifts.lift import Sequential
from apiece.vector.space import Space
from apiece.vector.task import Task

KEEPS_ALL = frozenset({"divergence"})  # every client's model is kept, so that a test can look at it


@dataclass(frozen=True)
class Given:
    """Local work that is written down: (round, client's name) -> rows of its samples, int64 [K, B]."""

    table: dict[tuple[int, str], Tensor]
    own: dict[tuple[int, str], Tensor] = field(default_factory=dict)  # the rows of a descriptor's batch

    def count(self, seed: int, round: int, name: str, samples: int) -> int:
        return len(self.table.get((round, name), ()))

    def batches(self, seed: int, round: int, name: str, samples: int, steps: int) -> Tensor:
        return self.table[round, name]

    def described(self, seed: int, round: int, name: str, samples: int) -> Tensor:
        return self.own[round, name]


@dataclass(frozen=True)
class FullBatch:
    """So many steps a round, each on all of the client's samples."""

    steps: int

    def count(self, seed: int, round: int, name: str, samples: int) -> int:
        return self.steps if samples else 0

    def batches(self, seed: int, round: int, name: str, samples: int, steps: int) -> Tensor:
        return torch.arange(samples).repeat(steps, 1)


class Ran(NamedTuple):
    """What came of a run: the server before the first and after each round, each round's answer, the clients' place."""

    servers: list[Server]
    answers: list[Answer]
    clients: Clients

    @property
    def last(self) -> Tensor:
        return self.servers[-1].params


def run(
    federated: Federated,
    federation: Any,
    work: Any,
    cohorts: Iterable[Sequence[int]],
    lr: Any = 0.1,
    lift: Any = None,
    absent: dict[int, set[int]] | None = None,
    after: Callable[[int, Clients], None] | None = None,
    on_bad_client: str = "stop",
) -> Ran:
    """Rounds with these cohorts; `lr` is a number or one a round, `absent` the clients that do not answer, by round."""
    clients = Clients(federated, federation, work, 0, lift or Sequential(), None, on_bad_client)
    servers, answers = [federated.start()], []
    for t, cohort in enumerate(cohorts):
        step = float(lr if np.isscalar(lr) else lr[t])
        server, answer = federated.round(
            servers[-1], clients, Plan([int(c) for c in cohort], frozenset((absent or {}).get(t, ())), step)
        )
        clients.commit(t)
        servers.append(server)
        answers.append(answer)
        if after is not None:
            after(t, clients)
    return Ran(servers, answers, clients)


def federate(
    algorithm: Any,
    module: nn.Module,
    dtype: torch.dtype = torch.float64,
    loss: Any = None,
    buffers: str = "average",
    **settings: Any,
) -> Federated:
    """An algorithm on a module as it is initialized."""
    space = Space(module, buffers=buffers, dtype=dtype)
    task = Task(space) if loss is None else Task(space, loss)
    return Federated(Setup(algorithm, task, space.ravel(), space.ravel_buffers(), **settings))


def federation(x: Sequence[Any], y: Sequence[Any], dtype: torch.dtype = torch.float64) -> Federation:
    """Clients with these samples, named c0, c1, ..."""
    pool = (torch.as_tensor(np.concatenate(x)).to(dtype), torch.as_tensor(np.concatenate(y)))
    rows = list(torch.arange(len(pool[1])).split([len(part) for part in y]))
    return Federation(pool, pool, rows, rows, [f"c{i}" for i in range(len(y))])


def clusters(
    sizes: Sequence[int] = (12, 5, 26, 3, 8),
    shape: tuple[int, ...] = (6,),
    classes: int = 3,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Federation:
    """Ragged clients with a labeling of their own."""
    rng = np.random.Generator(np.random.Philox(seed))
    x = [rng.normal(size=(n, *shape)) + rng.normal(size=shape) for n in sizes]
    y = [
        np.argmax(
            part.reshape(len(part), int(np.prod(shape))) @ rng.normal(size=(int(np.prod(shape)), classes)), axis=1
        )
        for part in x
    ]
    return federation(x, y, dtype)


def mlp(inputs: int = 6, hidden: int = 5, classes: int = 3) -> nn.Sequential:
    """Linear, tanh, linear, from a fixed seed."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, classes))


class Point(nn.Module):
    """One vector w; under the loss `quadratic` a batch of (A, b) costs the mean of (w - b)' A (w - b) / 2."""

    def __init__(self, size: int):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        return self.w.expand(len(x), -1)


class Quadratics(NamedTuple):
    """One quadratic a client; sample weights decide how often a client's sample is repeated."""

    a: np.ndarray  # [N, d, d]
    b: np.ndarray  # [N, d]
    counts: tuple[int, ...]

    @property
    def federation(self) -> Federation:
        a = [np.tile(m, (n, 1, 1)) for m, n in zip(self.a, self.counts, strict=True)]
        b = [np.tile(v, (n, 1)) for v, n in zip(self.b, self.counts, strict=True)]
        x, targets = torch.from_numpy(np.concatenate(a)), torch.from_numpy(np.concatenate(b))
        rows = list(torch.arange(len(x)).split(list(self.counts)))
        return Federation((x, (x, targets)), (), rows, rows, [f"c{i}" for i in range(len(self.a))])


def quadratics(clients: int = 5, size: int = 4, counts: tuple[int, ...] = (1, 2, 3, 1, 4), seed: int = 0) -> Quadratics:
    rng = np.random.Generator(np.random.Philox(seed))
    half = rng.normal(size=(clients, size, size))
    return Quadratics(
        half @ half.transpose(0, 2, 1) / size + 0.3 * np.eye(size), rng.normal(size=(clients, size)), counts
    )


def quadratic(w: Tensor, y: tuple[Tensor, Tensor]) -> Tensor:
    a, b = y
    return 0.5 * torch.einsum("ni,nij,nj->n", w - b, a, w - b).mean()


def by_torch(net: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterable[Any]) -> None:
    """Train with torch alone, a step a batch."""
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()


def models(ran: Ran) -> Tensor:
    """Every client's model as it last kept it, [N, D]; needs `watch=KEEPS_ALL` or a piece that reads it."""
    return torch.stack([ran.clients.row(c)[0]["model"] for c in range(len(ran.clients.federation.names))])


def gap(a: Any, b: Any) -> float:
    return float((torch.as_tensor(a) - torch.as_tensor(b)).abs().max())


class Seen(TorchDispatchMode):
    """Which operations ran in this thread, each with what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append((func, args))
        return func(*args, **(kwargs or {}))

    @property
    def operations(self) -> set[Any]:
        return {func for func, _ in self.calls}

    def of(self, *operations: Any) -> list[tuple]:
        """What each call of one of these was given."""
        return [args for func, args in self.calls if func in operations]
