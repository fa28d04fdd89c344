"""Clients with images, some rounds of theirs under a lift, and what a run left in the temporary folder."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from apiece.data.federation import Federation
from apiece.engine.clients import Clients
from apiece.engine.federated import Federated
from apiece.engine.setup import Setup
from apiece.engine.state import Plan
from apiece.engine.work import Work
from apiece.vector.space import Space
from apiece.vector.task import Task

SIDE, CLASSES, EACH, COUNT = 8, 3, 90, 6


def images(count: int = COUNT) -> Federation:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(count * EACH, 1, SIDE, SIDE, generator=rng)
    y = torch.randint(CLASSES, (count * EACH,), generator=rng)
    rows = list(torch.arange(count * EACH).split(EACH))
    return Federation((x, y), (x[:9], y[:9]), rows, rows, [f"client-{i}" for i in range(count)])


def net() -> nn.Sequential:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return nn.Sequential(body, nn.Linear(36, CLASSES))


def federated(algorithm, loss=None) -> Federated:
    space = Space(net())
    return Federated(Setup(algorithm, Task(space, loss) if loss else Task(space), space.ravel(), space.ravel_buffers()))


def rounds(subject: Federated, lift, data: Federation, count: int = 3):
    clients, server = Clients(subject, data, Work(3, None, 16), 0, lift), subject.start()
    for t in range(count):
        server, _ = subject.round(server, clients, Plan([(t + i) % COUNT for i in range(4)], frozenset(), 0.05))
        clients.commit(t)
    return server, clients.rows.digest()


def left(folder: str) -> list[str]:
    return [str(path) for path in Path(folder).rglob("*") if path.is_file() or path.name.startswith("apiece-")]
