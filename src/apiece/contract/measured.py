"""The laws of what a run measures between its rounds: the slots `evaluate`, `personal`, `predict` and `observe`."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from apiece.algebra.returned import MADE
from apiece.contract.comparing import REPEATS, equal
from apiece.contract.trial import LOSS, NAMES, Here, Trial
from apiece.data.federation import Federation
from apiece.engine.predicting import observed
from apiece.engine.stepping import Loop
from apiece.lifts.lift import Sequential
from apiece.measure.evaluate import Evaluation, Panel
from apiece.measure.global_average import global_model


def measures(trial: Trial, trained: Here) -> None:
    """Measuring members of the training, and clients new to its server, changes nothing, and repeats bitwise."""
    once, twice = (trained.clients.federated.setup.doubts(1 / len(NAMES)) for _ in range(2))
    assert once == twice, f"law 8 (the slot `doubt` {REPEATS})"
    copied = partial(tree_map_only, Tensor, torch.clone)
    for here in (trained, trained._replace(clients=trial.begin(Sequential()).clients)):
        pool = cast(Federation, here.clients.federation).pool
        before, rows = copied((here.server, pool)), here.clients.rows.digest()
        once, twice = measured(here), measured(here)
        equal(f"law 8 (a measurement changed its input; {MADE})", trial.subject, before, (here.server, pool))
        assert rows == here.clients.rows.digest(), "law 8 (a measurement changed rows)"
        equal(f"law 8 (a measurement {REPEATS})", trial.subject, once, twice)


def measured(here: Here) -> Any:
    """(each client's loss on its own samples, what pieces show of the first client)."""
    server, clients = here.server, here.clients
    federated, federation = clients.federated, clients.federation
    _, values = Evaluation(federated, federation, clients, Panel(len(NAMES)), 1)(server, 0.1, everyone=True)
    theta, buffers, _ = global_model(federated, server, clients)
    each = clients.each(0, server.round)
    sent = federated.setup.broadcast.model(theta, server.broadcast, each)
    shown = observed(federated.setup, Loop(), sent, buffers, federated.shared(server, 0.0), each)
    return {NAMES[client]: own[LOSS.name] for client, own in values.items()}, shown
