"""pFedHN: the server learns a descriptor for every client, and a hypernetwork that writes models from descriptors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from driftless.broadcast import GENERATED, Sent, Setting, pull, write
from driftless.clients import Clients
from driftless.errors import UserError
from driftless.optim import OnServer, Sgd
from driftless.pefll import SIZES, Hypernetwork, descriptor_size, seeded
from driftless.piece import Rows
from driftless.randomness import generator
from driftless.space import Space
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
        rows = torch.tensor([self.row[client] for client in who], dtype=torch.int64)
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


@dataclass(frozen=True)
class Pfedhn:
    """The recipe: v_i and eta by SGD on <stopgrad(delta_i), h(v_i; eta)>; `complete` gives the table.

    Shamsian et al., "Personalized Federated Learning using Hypernetworks", ICML 2021, Algorithm 1, and the official
    code's values: descriptors of int(1 + n/4) entries, N(0, 1) at first; momentum 0.9 and weight decay 1e-3 on the
    whole table and eta in every round, both clipped together; the code takes one client a round, and for the clients
    lr=0.005, clip=50, steps=50, batch=64. Rows lie in the order of the clients' names.
    Clients store nothing. Sent down: theta_i; up: delta_i. A client never seen: a new descriptor, learned in rounds.
    """

    size: str = "M"
    lr: float = 1e-2
    momentum: float = 0.9
    weight_decay: float = 1e-3
    clip: float = 50.0

    delta = Rows
    common = False

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise UserError(f"pfedhn(size={self.size}) is unknown: size is one of {', '.join(SIZES)}.")

    def neutral(self) -> str:
        return GENERATED

    def complete(self, space: Space, setting: Setting | None) -> Table:
        assert setting is not None, "a recipe is completed for a federation"
        width, order = descriptor_size(len(setting.names)), sorted(setting.seen, key=setting.names.__getitem__)
        sizes = [entry.size for entry in space.parameters]
        made: list[Space] = []

        def hypernetwork() -> Space:  # made where it is asked for: on the server
            if not made:
                made.append(
                    seeded(lambda: Hypernetwork(width, sizes, SIZES[self.size]), setting.seed, "hypernetwork", space)
                )
            return made[0]

        def initial() -> Tensor:
            rows = [first(setting.seed, setting.names[client], width, space.dtype) for client in order]
            return torch.cat([*rows, hypernetwork().ravel()])

        none = torch.zeros(0, dtype=space.dtype)
        return Table(
            lambda eta, v: hypernetwork().outputs(eta, v, none),
            initial,
            {c: r for r, c in enumerate(order)},
            width,
            OnServer(Sgd(self.momentum, self.weight_decay), self.lr, self.clip),
            lambda eta: {f"hypernetwork.{k}": v for k, v in hypernetwork().state_dict(eta).items()},
        )


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
    v = first(clients.seed, clients.federation.names[client], table.width, eta.dtype)
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
