"""An algorithm tried on the contract's problem: seven unlike clients, some of them absent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apiece.algebra.broadcast import FederationFacts
from apiece.algebra.composition import Algorithm
from apiece.algebra.optim import Sgd
from apiece.data.federation import Federation
from apiece.engine import row
from apiece.engine.clients import Clients
from apiece.engine.cohorts import absent, cohort
from apiece.engine.federated import Federated
from apiece.engine.setup import Setup
from apiece.engine.state import Plan, Server
from apiece.engine.work import Between, Work
from apiece.lifts.lift import Sequential
from apiece.randomness import generator
from apiece.storage import checkpoint
from apiece.storage.disk import DiskRows
from apiece.storage.row_format import RowFormat
from apiece.storage.trees import restore
from apiece.vector.metric import Metric
from apiece.vector.space import Space
from apiece.vector.task import Task

NAMES = ("quince", "apple", "medlar", "fig", "sloe", "none", "cherry")
SAMPLES = (12, 5, 26, 3, 1, 0, 17)
FEATURES, HIDDEN, CLASSES = 6, 5, 3
ASKED, ABSENT, ROUNDS, SEED = 5, 0.2, 5, 0
LOSS = Metric("loss", lambda outputs, y: F.cross_entropy(outputs, y, reduction="none"), higher=False)


def model() -> nn.Module:
    """The contract's model from FEATURES to CLASSES; what is trained of it is drawn elsewhere, what is frozen here."""
    sizes, rng = ((FEATURES, HIDDEN), (HIDDEN, CLASSES)), generator(SEED, "frozen")
    one, two = (nn.utils.skip_init(nn.Linear, *size) for size in sizes)
    for parameter in (*one.parameters(), *two.parameters()):
        parameter.data.copy_(torch.from_numpy(0.5 * rng.standard_normal(parameter.shape)))
    return nn.Sequential(one, nn.Tanh(), two)


class Here(NamedTuple):
    server: Server
    clients: Clients


@dataclass(frozen=True)
class Trial:
    """An algorithm on the problem in one number format; every call makes all objects anew."""

    subject: Algorithm
    dtype: torch.dtype
    module: Callable[[], nn.Module]
    settings: dict[str, Any]

    def federated(self, order: list[int] | None = None) -> Federated:
        with torch.random.fork_rng():
            module = self.module()
            for piece in self.subject.pieces:
                module = piece.prepare(module)
        space = Space(module, dtype=self.dtype)
        initial = torch.from_numpy(0.5 * generator(SEED, "initial").standard_normal(space.size)).to(self.dtype)
        given = {"client": Sgd(momentum=0.9, weight_decay=1e-3), "clip": 1.0} | self.settings
        names = [NAMES[i] for i in order or range(len(NAMES))]
        setting = FederationFacts((FEATURES,), CLASSES, names, range(len(NAMES)), SEED)
        task = Task(space, metrics=(LOSS,))
        return Federated(Setup(self.subject, task, initial, space.ravel_buffers(), setting=setting, **given))

    @property
    def layout(self) -> RowFormat:
        return RowFormat.of(row.write(row.fresh(self.federated().setup)))

    def begin(self, lift: Any, rows: Any = None, order: list[int] | None = None) -> Here:
        federated = self.federated(order)
        clients = Clients(federated, problem(self.dtype, order), Work(Between(0, 3), batch=4), SEED, lift, rows)
        return Here(federated.start(), clients)

    def round(self, here: Here, t: int) -> Server:
        clients, names = here.clients, list(here.clients.federation.names)
        periods = clients.federated.setup.periods
        held = int(periods.slowest.interval(t)) * periods.longest if self.subject.cohort == "held" else t
        asked = cohort(SEED, held, names, clients.federation.participants, ASKED)
        away = absent(SEED, t, names, asked, ABSENT)
        return clients.federated.round(here.server, clients, Plan(asked, away, 0.1 * 0.9**t))[0]

    def commit(self, here: Here, t: int, server: Server) -> Here:
        here.clients.commit(t)
        return here._replace(server=server)

    def step(self, here: Here, t: int) -> Here:
        return self.commit(here, t, self.round(here, t))

    def run(self, lift: Any, rounds: int = ROUNDS, order: list[int] | None = None) -> Here:
        return self.further(self.begin(lift, order=order), rounds)

    def further(self, here: Here, rounds: int = ROUNDS) -> Here:
        """The same run, continued until `rounds` rounds are done."""
        for t in range(here.server.round, rounds):
            here = self.step(here, t)
        return here

    def load(self, folder: Path) -> Here:
        """The run as it stands on the disk, in new objects."""
        found = checkpoint.latest(folder, "contract")[0]
        assert found is not None
        rows = DiskRows(folder, self.layout, "contract")
        rows.restore(found.number, found.about["rows"])
        here = self.begin(Sequential(), rows)
        template = tuple(here.server[1:])
        return here._replace(server=Server(found.number, *restore(template, found.tensors, "server")))

    def models(self, here: Here) -> list[Tensor]:
        return [here.clients.row(client)[0]["model"] for client in range(len(NAMES))]


def problem(dtype: torch.dtype, order: list[int] | None = None) -> Federation:
    """The contract's clients: each has labels and shifted features of its own."""
    rng = generator(SEED, "data")
    x, y = [], []
    for count in SAMPLES:
        x.append(rng.standard_normal((count, FEATURES)) + rng.standard_normal(FEATURES))
        y.append(np.argmax(x[-1] @ rng.standard_normal((FEATURES, CLASSES)), axis=1))
    pool = (torch.from_numpy(np.concatenate(x)).to(dtype), torch.from_numpy(np.concatenate(y)))
    rows = list(torch.arange(sum(SAMPLES)).split(list(SAMPLES)))
    names, mine = zip(*[(NAMES[i], rows[i]) for i in order or range(len(NAMES))], strict=True)
    return Federation(pool, pool, mine, mine, names)
