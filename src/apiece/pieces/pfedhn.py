"""pFedHN: the server learns a descriptor for every client, and a hypernetwork that writes models from descriptors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from apiece.algebra.broadcast import FederationFacts
from apiece.algebra.composition import Algorithm, Client, algorithm
from apiece.algebra.generators import GENERATED, Table
from apiece.algebra.message import PerClient
from apiece.algebra.optim import OnServer, Sgd
from apiece.algebra.papers import paper
from apiece.errors import UserError
from apiece.networks.hypernetwork import Hypernetwork
from apiece.pieces.pefll import SIZES, descriptor_size
from apiece.randomness import generator
from apiece.system.device import to_device
from apiece.vector.space import Space, seeded


@dataclass(frozen=True)
class Pfedhn:
    """theta_i = h(v_i; eta);   v_i, eta <- SGD on <stopgrad(delta_i), h(v_i; eta)>. `complete` makes its `Table`.

    Shamsian et al., "Personalized Federated Learning using Hypernetworks", ICML 2021, Algorithm 1, and the official
    code's values: descriptors of int(1 + n/4) entries, initially N(0, 1); momentum 0.9 and weight decay 1e-3 on the
    whole table and eta in every round, both clipped together. The code asks one client a round, with lr=0.005, clip=50,
    steps=50 and batch=64 on clients. The table's rows follow the order of the clients' names. Stored: v_i and eta, on
    the server. Sent down: theta_i; up: delta_i. An unseen client gets a new descriptor, which is learned in rounds.
    """

    size: str = "M"
    lr: float = 1e-2
    momentum: float = 0.9
    weight_decay: float = 1e-3
    clip: float = 50.0

    delta = PerClient
    common = False

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise UserError(f"pfedhn(size={self.size}) is unknown: size is one of {', '.join(SIZES)}.")

    def neutral(self) -> str:
        return GENERATED

    def complete(self, space: Space, setting: FederationFacts | None) -> Table:
        assert setting is not None, "a recipe is completed for a federation"
        width, order = descriptor_size(len(setting.names)), sorted(setting.participants, key=setting.names.__getitem__)
        sizes = [entry.size for entry in space.parameters]

        @cache
        def hypernetwork() -> Space:  # built on first use: on the server
            make = lambda: Hypernetwork(width, sizes, SIZES[self.size])
            return seeded(make, setting.seed, "hypernetwork", space)

        def initial() -> Tensor:
            rows = [first(setting.seed, setting.names[client], width, space.dtype) for client in order]
            return torch.cat([*to_device(rows, space.device), hypernetwork().ravel()])

        none = torch.zeros(0, dtype=space.dtype, device=space.device)
        return Table(
            lambda eta, v: hypernetwork().outputs(eta, v, none),
            initial,
            {c: r for r, c in enumerate(order)},
            width,
            OnServer(Sgd(self.momentum, self.weight_decay), self.lr, self.clip),
            lambda eta: {f"hypernetwork.{k}": v for k, v in hypernetwork().state_dict(eta).items()},
        )


def first(seed: int, name: str, width: int, dtype: torch.dtype) -> Tensor:
    """A client's initial descriptor [E]: N(0, 1), from the client's own stream."""
    return torch.from_numpy(generator(seed, "descriptor", name).standard_normal(width)).to(dtype)


@paper("the authors' code", weighting="uniform", optimizer="sgd(momentum=0.9, weight_decay=5e-05)", lr=0.005, clip=50.0)
def pfedhn(
    size: str = Pfedhn.size,
    lr: float = Pfedhn.lr,
    clip: float = Pfedhn.clip,
    decay: float = Pfedhn.weight_decay,
    momentum: float = 0.9,
    weight_decay: float = 5e-5,
) -> Algorithm:
    """A hypernetwork writes each client's model from a learned descriptor: size=S|M|L (Shamsian et al. 2021).

    Use it for few clients that come back often. A new client costs rounds of training with the server.
    """
    recipe = Pfedhn(size, lr, weight_decay=decay, clip=clip)
    return algorithm(recipe, Client(Sgd(momentum, weight_decay)), name="pfedhn")
