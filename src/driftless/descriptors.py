"""A table of descriptors on the server, one for every client that trains, and a generator that writes models from them.

A client without a row is served the model of their mean, or of a new descriptor that it learns with the server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from driftless.broadcast import Sent, Setting, pull, write
from driftless.clients import Clients
from driftless.device import to_device
from driftless.piece import Rows
from driftless.randomness import generator
from driftless.state import Server
from driftless.traffic import Traffic

ROUNDS = 20  # in which a client never seen learns its descriptor (Scott et al. 2024, appendix A.2)


@dataclass(frozen=True)
class Table:
    """Client i receives generate(eta, v_i), v_i a row of the server's own parameters [table, eta].

    `row` says which client's row is which. The transpose gives d eta and d v_i, none for who did not answer. A client
    without a row is sent the model of the mean of all rows.
    """

    generate: Callable[[Tensor, Tensor], Tensor]
    parameters: Callable[[], Tensor]
    row: dict[int, int]
    width: int
    optimiser: Any
    networks: Callable[[Tensor], dict[str, Tensor]]

    delta = Rows
    common = False

    def complete(self, space: Any, setting: Setting | None) -> Table:
        return self

    def initial(self, theta: Tensor) -> Tensor:
        return self.parameters()

    def memory(self, params: Tensor) -> Any:
        return ()

    def split(self, params: Tensor) -> tuple[Tensor, Tensor]:
        """(the table [N, E], eta)."""
        size = len(self.row) * self.width
        return params[:size].view(len(self.row), self.width), params[size:]

    def send(self, params: Tensor, memory: Any, cohort: Any, shared: Any) -> Sent:
        table, eta = self.split(params)
        who = list(cohort.cohort)
        rows = to_device(torch.tensor([self.row[client] for client in who], dtype=torch.int64), params.device)
        models, transpose = write(self.generate, eta, table[rows])

        def back(answer: Any) -> tuple[Tensor, Any]:
            d_eta, d_v = transpose(pull(answer, who, models))
            return torch.cat([torch.zeros_like(table).index_copy(0, rows, d_v).flatten(), d_eta]), answer

        return Sent(None, dict(zip(who, models, strict=True)), back, memory)

    @torch.no_grad()
    def model(self, params: Tensor, memory: Any, each: Any) -> Tensor:
        table, eta = self.split(params)
        who = self.row.get(int(each.who))
        return self.generate(eta, table.mean(0) if who is None else table[who])

    def state(self, params: Tensor, memory: Any) -> dict[str, Tensor]:
        """The table and the hypernetwork, by name."""
        table, eta = self.split(params)
        return {"descriptors": table.clone()} | self.networks(eta)


def first(seed: int, name: str, width: int, dtype: torch.dtype) -> Tensor:
    """A descriptor before any training: N(0, 1), from the client's own stream. [E]"""
    return torch.from_numpy(generator(seed, "descriptor", name).standard_normal(width)).to(dtype)


class New(NamedTuple):
    """A model for a client without a row, and what its descriptor cost."""

    model: Tensor  # [D]
    traffic: Traffic
    steps: int  # on the client


def new_descriptor(server: Server, clients: Clients, client: int, lr: float, rounds: int = ROUNDS) -> New:
    """A program: v is drawn, and moved in `rounds` rounds by the pull of the client's delta on it; eta stands.

    The server's own optimiser moves v. Shamsian et al. 2021, section 3.3; Scott et al. 2024, appendix A.2.
    """
    federated, table = clients.federated, clients.federated.broadcast
    eta = table.split(server.params)[1]
    v = to_device(first(clients.seed, clients.federation.names[client], table.width, eta.dtype), eta.device)
    state, traffic, steps = table.optimiser.init(v), Traffic(), 0
    for t in range(server.round, server.round + rounds):
        models, transpose = write(table.generate, eta, v[None])
        shared = federated.shared(server._replace(round=t), lr)._replace(model=())
        answer = clients.at([client], frozenset(), t).map("train", shared, {client: models[0]})
        if answer.answered:
            traffic, steps = traffic.plus(answer.traffic), steps + clients.steps(client, t)
            v, state = table.optimiser.step(transpose(pull(answer, [client], models))[1][0], v, state)
    with torch.no_grad():
        return New(table.generate(eta, v), traffic, steps)
