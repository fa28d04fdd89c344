"""PeFLL: an embedding network on the clients and a hypernetwork on the server learn together to write models.

    v_i = mean over a batch of phi(x, y)    up        |
    theta_i = h((v_i - m) / s)              down      | predict
    delta_i = theta_i - theta_i', k steps   up        |
    d v_i, from delta_i through h           down
    d phi_i, from d v_i through phi         up          eta <- Adam or SGD (mean of both transposes at delta_i)

`Pipeline` performs every arrow; this file only defines the two networks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from apiece.algebra.broadcast import FederationFacts
from apiece.algebra.composition import Algorithm, Client, algorithm, changed
from apiece.algebra.generators import GENERATED, AllSamples, FirstBatch, Frozen, OwnBatch, Pipeline
from apiece.algebra.message import PerClient
from apiece.algebra.optim import AdamWTogether, OnServer, Sgd
from apiece.algebra.papers import paper
from apiece.errors import UserError
from apiece.networks.hypernetwork import SMALLEST, WIDTH, Hypernetwork, embedding
from apiece.pieces.samples import label_columns
from apiece.vector.space import Space, seeded

SIZES = {"S": 1, "M": 3, "L": 5}  # hidden layers
EMBEDDINGS = ("auto", "linear", "mlp", "cnn")
DESCRIBED = {"first": FirstBatch(), "batch": OwnBatch(), "all": AllSamples()}  # which samples make a descriptor
SERVERS = {"adam": 2e-4, "sgd": 1.0}  # the server optimizers' step sizes


def descriptor_size(clients: int) -> int:
    """l = int(1 + n / 4), where n counts all clients, also those that never train."""
    return int(1 + clients / 4)


REFUSAL = "pefll describes a client by its labels: they must be classes, one or several a sample."


class Bound(NamedTuple):
    """What determines the two networks: the model's space, the federation, and the sizes."""

    space: Space
    setting: FederationFacts
    kind: str
    hidden: int
    width: int


class Networks:
    """phi and h as functions of flat vectors. A client builds phi alone; the server builds h when it first needs it."""

    def __init__(self, bound: Bound):
        self.bound, self.size = bound, descriptor_size(len(bound.setting.names))
        make = lambda: embedding(bound.kind, bound.setting.shape, bound.setting.classes, self.size)
        self.embedding = seeded(make, bound.setting.seed, "embedding", bound.space)
        self._none = self.embedding.ravel_buffers()

    @cached_property
    def hypernetwork(self) -> Space:
        sizes = [entry.size for entry in self.bound.space.parameters]
        make = lambda: Hypernetwork(self.size, sizes, self.bound.hidden, self.bound.width)
        return seeded(make, self.bound.setting.seed, "hypernetwork", self.bound.space)

    def embed(self, phi: Tensor, batch: Any) -> Tensor:
        """The mean of phi over the samples of a batch, [E]; zero for an empty batch."""
        x, y = batch
        labels = label_columns(y, self.bound.setting.classes, self.bound.setting.task, phi.dtype, REFUSAL)
        seen = labels
        if self.bound.kind == "cnn":
            seen = torch.cat([x, labels[:, :, None, None].expand(*labels.shape, *x.shape[2:])], 1)
        return self.embedding.outputs(phi, seen, self._none).sum(0) / max(len(labels), 1)

    def generate(self, eta: Tensor, v: Tensor) -> Tensor:
        """h(v), a model [D]."""
        return self.hypernetwork.outputs(eta, v, self._none)

    def initial(self) -> Tensor:
        """The initial [phi, eta], one vector."""
        return torch.cat([self.embedding.ravel(), self.hypernetwork.ravel()])

    def named(self, params: Tensor) -> dict[str, Tensor]:
        """The parameters of both networks, by name."""
        split = self.embedding.size
        halves = {"embedding": (self.embedding, params[:split]), "hypernetwork": (self.hypernetwork, params[split:])}
        return {f"{name}.{k}": v for name, (space, half) in halves.items() for k, v in space.state_dict(half).items()}


@dataclass(frozen=True)
class Pefll:
    """The recipe; `complete` makes the pipeline: phi on the client, h on the server, (v - m) / s frozen between them.

    v_i = mean phi(x, y), theta_i = h((v_i - m) / s), delta_i = theta_i - theta_i' after k local steps; both networks
    step against the mean of their transposed derivatives at delta_i. Scott et al., "PeFLL: Personalized Federated
    Learning by Learning to Learn", ICLR 2024, Algorithms 1 and 2, for (1): min lambda_h |eta_h|^2 + lambda_v |eta_v|^2
    + sum_i [L(h(v_i)) + lambda_theta |h(v_i)|^2]. delta_i is the gradient (line 12), not divided by the step size or k.

    `server="sgd"`: eta <- eta - lr (that mean + 2 beta lambda eta), where beta is the clients' step size of the round;
    lr=1 gives lines 17 and 18. `server="adam"`: the official code's, with decoupled decay by 2 lr lambda and lr=0.0002.
    The gradient is clipped before the step, unlike in Algorithm 2 (clip=none).

    The samples B of a descriptor (line 5) in training: `descriptor="batch"`: a batch of its own, as in the official
    code; `"first"`: the batch of the round's first local step; `"all"`: all, as always outside training.

    As in the official code and not in the paper: m and s are mean and deviation of the first descriptor's entries,
    frozen (here they are saved with the model, too); no ReLU precedes the hypernetwork's last layers; l = int(1 + n/4);
    lambda_h and lambda_v are 0, where the paper has 0.001, and the clients' weight decay, which is 2 lambda_theta, is
    5e-5, where the paper has 0 (A.2). The authors' run: lr=0.002, clip=50, weighting=uniform, steps=50,
    batch=32. Stored: nothing on clients. Sent down: eta_v, theta_i, d v_i; up: v_i, delta_i, d eta_v. An unseen client
    sends one descriptor and receives one model, without a step.
    """

    embedding: str = "auto"
    size: str = "M"
    lr: float | None = None
    clip: float | None = 50.0
    lambda_h: float = 0.0
    lambda_v: float = 0.0
    descriptor: str = "batch"
    server: str = "adam"

    delta = PerClient
    common = False

    def __post_init__(self) -> None:
        if self.embedding not in EMBEDDINGS or self.size not in SIZES:
            raise UserError(
                f"pefll(embedding={self.embedding}, size={self.size}) is unknown: embedding is one of "
                f"{', '.join(EMBEDDINGS)}, size one of {', '.join(SIZES)}."
            )
        if self.descriptor not in DESCRIBED or self.server not in SERVERS:
            raise UserError(
                f"pefll(descriptor={self.descriptor}, server={self.server}) is unknown: descriptor is one of "
                f"{', '.join(DESCRIBED)}, server one of {', '.join(SERVERS)}."
            )
        if min(self.lambda_h, self.lambda_v) < 0:
            raise UserError(
                f"pefll(lambda_h={self.lambda_h:g}, lambda_v={self.lambda_v:g}) would let the networks grow: give 0 or "
                "more of both."
            )

    def neutral(self) -> str:
        return GENERATED

    def complete(self, space: Space, setting: FederationFacts | None) -> Pipeline:
        assert setting is not None, "a recipe is completed for a federation"
        image = len(setting.shape) == 3 and min(setting.shape[1:]) >= SMALLEST
        kind = self.embedding if self.embedding != "auto" else "cnn" if image else "mlp"
        networks = Networks(Bound(space, setting, kind, SIZES[self.size], WIDTH))
        return self.between(networks)

    def between(self, networks: Networks) -> Pipeline:
        """The pipeline through these networks."""
        split, decay = networks.embedding.size, 2 * self.lambda_h
        if self.lambda_v != self.lambda_h:
            halves = ((networks.embedding, self.lambda_v), (networks.hypernetwork, self.lambda_h))
            decay = torch.cat([torch.full_like(space.ravel(), 2 * strength) for space, strength in halves])
        adam = self.server == "adam"
        lr = SERVERS[self.server] if self.lr is None else self.lr
        return Pipeline(
            networks.embed,
            networks.generate,
            networks.initial,
            split,
            Frozen(),
            OnServer(AdamWTogether(weight_decay=decay) if adam else Sgd(), lr, self.clip),
            networks.named,
            DESCRIBED[self.descriptor],
            None if adam else decay,
        )


@paper(
    "the authors' code",
    weighting="uniform",
    optimizer="sgd(momentum=0.9, weight_decay=5e-05)",
    lr=0.002,
    clip=50.0,
)
def pefll(
    embedding: str = Pefll.embedding,
    size: str = Pefll.size,
    lr: float | None = Pefll.lr,
    clip: float | None = Pefll.clip,
    lambda_h: float = Pefll.lambda_h,
    lambda_v: float = Pefll.lambda_v,
    momentum: float = 0.9,
    weight_decay: float = 5e-5,
    descriptor: str = Pefll.descriptor,
    server: str = Pefll.server,
) -> Algorithm:
    """A hypernetwork writes each client's model from the client's data: embedding=linear|mlp|cnn, size=S|M|L,
    descriptor=batch|first|all, server=adam|sgd, where lr=none is 0.0002 or 1 (Scott et al. 2024).

    Use it where many clients come that never trained: one pass over a few of their samples gives them a model. The
    server sees each client's descriptor.
    """
    recipe = Pefll(embedding, size, lr, clip, lambda_h, lambda_v, descriptor, server)
    named = changed(pefll, descriptor=descriptor, server=server)
    return algorithm(recipe, Client(Sgd(momentum, weight_decay)), name=f"pefll({named[2:]})" if named else "pefll")
