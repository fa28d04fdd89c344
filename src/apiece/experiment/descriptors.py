"""Where descriptors in a table begin, and how a client without a descriptor learns one together with the server."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor

from apiece.algebra.generators import Table, pull, write
from apiece.algebra.place import Traffic
from apiece.engine.clients import Clients
from apiece.engine.state import Server
from apiece.pieces.pfedhn import first
from apiece.system.device import to_device

ROUNDS = 20  # in which a new client learns its descriptor (Scott et al. 2024, appendix A.2)


class New(NamedTuple):
    """A model for a client without a row, and what its descriptor cost."""

    model: Tensor  # [D]
    traffic: Traffic
    steps: int  # on the client


def new_descriptor(server: Server, clients: Clients, client: int, lr: float) -> New:
    """A descriptor v is drawn, and moved for ROUNDS rounds by the pull of the client's delta on it; eta stays fixed.

    The server's own optimizer moves v. Shamsian et al. 2021, section 3.3; Scott et al. 2024, appendix A.2.
    """
    federated, table = clients.federated, cast(Table, clients.federated.setup.broadcast)
    eta = table.split(server.params)[1]
    v = to_device(first(clients.seed, clients.federation.names[client], table.width, eta.dtype), eta.device)
    state, traffic, steps = table.optimizer.init(v), Traffic(), 0
    for t in range(server.round, server.round + ROUNDS):
        models, transpose = write(table.generate, eta, v[None])
        shared = federated.shared(server._replace(round=t), lr)._replace(model=())
        answer = clients.at([client], frozenset(), t).map("train", shared, {client: models[0]})
        if answer.answered:
            traffic, steps = traffic.plus(answer.traffic), steps + clients.steps(client, t)
            v, state = table.optimizer.step(transpose(pull(answer, [client], models))[1][0], v, state)
    with torch.no_grad():
        return New(table.generate(eta, v), traffic, steps)
