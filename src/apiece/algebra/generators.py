"""Models that the server writes for each client by a generator: from a descriptor, or from a row of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from apiece.algebra.broadcast import FederationFacts, Sent
from apiece.algebra.message import PerClient
from apiece.algebra.optim import OnServer, Optimizer
from apiece.algebra.place import Answer, Cohort, Described, Shared
from apiece.system.device import to_device
from apiece.system.typed import divided
from apiece.vector.space import Space

Embed = Callable[[Tensor, Any], Tensor]  # (phi, batch) -> [E], a mean over the batch
CHUNK = 500  # samples a pass, where a client's whole data are described
GENERATED = "its server has no model to average, but a generator of models"  # why no value of it is FedAvg


class Affine(NamedTuple):
    """v -> (v - mean) / deviation; as it is where the deviation is still 0."""

    mean: Tensor
    deviation: Tensor


class Normalize(Protocol):
    """What stands between descriptors and the generator, with a memory on the server."""

    def memory(self, params: Tensor) -> Any: ...

    def fit(self, memory: Any, v: Tensor) -> Any: ...

    def __call__(self, memory: Any, v: Tensor) -> Tensor: ...


class Describe(Protocol):
    """Which samples a descriptor in training is of."""

    @property
    def own_batch(self) -> bool: ...

    def __call__(self, embed: Embed, phi: Tensor, each: Described) -> Tensor: ...


@dataclass(frozen=True)
class Unchanged:
    """Descriptors as they are."""

    def memory(self, params: Tensor) -> Any:
        return ()

    def fit(self, memory: Any, v: Tensor) -> Any:
        return memory

    def __call__(self, memory: Any, v: Tensor) -> Tensor:
        return v


@dataclass(frozen=True)
class Frozen:
    """Descriptors (v - m) / s: m and s are mean and deviation of the entries of the first descriptor ever, frozen.

    >>> frozen, first = Frozen(), torch.tensor([1.0, 3.0])
    >>> frozen(frozen.fit(frozen.memory(first), first), torch.tensor([2.0, 2.0]))
    tensor([0., 0.])
    """

    def memory(self, params: Tensor) -> Affine:
        return Affine(params.new_zeros(()), params.new_zeros(()))

    def fit(self, memory: Affine, v: Tensor) -> Affine:
        if bool(memory.deviation > 0):
            return memory
        deviation = v.std() if len(v) > 1 else torch.ones_like(v[0])
        return Affine(v.mean(), torch.where(deviation > 0, deviation, 1.0))

    def __call__(self, memory: Affine, v: Tensor) -> Tensor:
        return (v - memory.mean) / torch.where(memory.deviation > 0, memory.deviation, 1.0)


@dataclass(frozen=True)
class FirstBatch:
    """A descriptor in training is of the first batch of the round's local steps."""

    own_batch = False

    def __call__(self, embed: Embed, phi: Tensor, each: Described) -> Tensor:
        return embed(phi, each.samples.batch(each.batches[0]))


@dataclass(frozen=True)
class OwnBatch:
    """A descriptor in training is of a batch that is drawn for it."""

    own_batch = True

    def __call__(self, embed: Embed, phi: Tensor, each: Described) -> Tensor:
        assert isinstance(each.described, Tensor), "a batch is drawn wherever a broadcast has `own_batch`"
        return embed(phi, each.samples.batch(each.described))


@dataclass(frozen=True)
class AllSamples:
    """A descriptor in training is of all of the client's samples, as it is outside training."""

    own_batch = False

    def __call__(self, embed: Embed, phi: Tensor, each: Described) -> Tensor:
        rows = torch.arange(len(each.samples.index), device=phi.device)

        def one(row: Tensor) -> Tensor:
            return embed(phi, each.samples.batch(row[None]))

        every = torch.func.vmap(one, chunk_size=CHUNK)(rows)  # [n, E], beyond the client's own size repeated
        there = (rows < each.samples.size).to(every.dtype)
        return there @ every / each.samples.size


@dataclass(frozen=True)
class Pipeline:
    """on_client(embed), then on_server(generate): client i receives generate(eta, v_i), v_i = embed(phi, its samples).

    The server's parameters are [phi, eta], `split` the length of phi; a function of nothing makes them where the server
    starts. The transpose runs the same way back: deltas through the generator on the server give d eta and d v_i; v's
    part goes down to client i, which answers with its d phi. `embed(phi, batch) -> [E]`, a mean over the batch, and
    `generate(eta, v) -> [D]` are pure functions of flat vectors. `normalize` stands between them, on the server; what
    it remembers is the broadcast's memory. `optimizer` is the server's, where it is the pipeline's own; `networks`
    says the parameters by the networks' names. `described` says which samples a descriptor in training is of. `decay`,
    a number or one for each of the server's parameters, adds decay times the clients' step size times these to the
    server's gradient.

    >>> import torch
    >>> embed, generate = lambda phi, batch: phi * batch[0].mean(), lambda eta, v: eta * v
    >>> Pipeline(embed, generate, parameters=torch.ones(2), split=1, normalize=Frozen()).split
    1
    """

    embed: Embed
    generate: Callable[[Tensor, Tensor], Tensor]
    parameters: Tensor | Callable[[], Tensor]
    split: int
    normalize: Normalize = Unchanged()
    optimizer: Optimizer | None = None
    networks: Callable[[Tensor], dict[str, Tensor]] | None = None
    described: Describe = FirstBatch()
    decay: float | Tensor | None = None

    delta = PerClient
    common = False

    @property
    def own_batch(self) -> bool:
        return self.described.own_batch

    def descriptor(self, phi: Tensor, each: Described) -> Tensor:
        """v_i in training, [E]."""
        return self.described(self.embed, phi, each)

    def neutral(self) -> str:
        return GENERATED

    def complete(self, space: Space, setting: FederationFacts | None) -> Pipeline:
        return self

    def initial(self, theta: Tensor) -> Tensor:
        return self.parameters() if callable(self.parameters) else self.parameters.clone()

    def memory(self, params: Tensor) -> Any:
        return self.normalize.memory(params)

    def send(self, params: Tensor, memory: Any, cohort: Cohort, shared: Shared) -> Sent:
        phi, eta = params[: self.split], params[self.split :]
        up = cohort.map("embed", shared._replace(model=phi))
        who = up.answered
        if not who:

            def nothing(answer: Answer) -> tuple[Tensor, Answer]:
                return torch.zeros_like(params), answer

            return Sent(None, {}, nothing, memory, up.traffic)
        v = torch.stack([up.rows[client].x for client in who])
        memory = self.normalize.fit(memory, v[0])
        models, transpose = write(lambda eta, v: self.generate(eta, self.normalize(memory, v)), eta, v)

        def back(answer: Answer) -> tuple[Tensor, Answer]:
            d_eta, d_v = transpose(pull(answer, who, models))
            down = {client: d_v[row] for row, client in enumerate(who) if client in answer.rows}
            last = cohort.only(list(down)).map("embed_back", shared._replace(model=phi), down)
            d_phi = last.mean.x if last.answered else torch.zeros_like(phi)
            if len(last.answered) < len(down):  # who misses the last phase is absent: the others' shares grow
                there = {client: answer.rows[client] for client in last.answered}
                d_eta = transpose(pull(answer._replace(rows=there), who, models))[0]
                d_phi = d_phi * (_weight(answer.rows) / max(_weight(there), 1e-12))
            g = torch.cat([d_phi, d_eta])
            g = g if self.decay is None else g + shared.lr * self.decay * params
            return g, answer._replace(traffic=answer.traffic.plus(last.traffic))

        return Sent(None, dict(zip(who, models, strict=True)), back, memory, up.traffic)

    @torch.no_grad()
    def model(self, params: Tensor, memory: Any, each: Described) -> Tensor:
        """One forward pass: the descriptor of the client's whole training data, through the generator."""
        v = self.normalize(memory, self.describe(params, each))
        return self.generate(params[self.split :], v)

    def describe(self, params: Tensor, each: Described) -> Tensor:
        """The mean embedding of all of a client's training samples, [E]."""
        size, phi = int(each.samples.size), params[: self.split]
        parts = divided(torch.arange(size, device=phi.device), CHUNK)
        return sum(self.embed(phi, each.samples.batch(p)) * (len(p) / max(size, 1)) for p in parts)  # type: ignore

    def state(self, params: Tensor, memory: Any) -> dict[str, Tensor]:
        """All that the server needs to serve a client, by name: the networks and what `normalize` remembers."""
        named = {"parameters": params.clone()} if self.networks is None else self.networks(params)
        fields: dict[str, Tensor] = memory._asdict() if memory else {}
        return named | {f"normalize.{name}": leaf.clone() for name, leaf in fields.items()}


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
    optimizer: OnServer
    networks: Callable[[Tensor], dict[str, Tensor]]

    delta = PerClient
    common = False
    own_batch = False

    def complete(self, space: Space, setting: FederationFacts | None) -> Table:
        return self

    def initial(self, theta: Tensor) -> Tensor:
        return self.parameters()

    def memory(self, params: Tensor) -> Any:
        return ()

    def split(self, params: Tensor) -> tuple[Tensor, Tensor]:
        """(the table [N, E], eta)."""
        size = len(self.row) * self.width
        return params[:size].view(len(self.row), self.width), params[size:]

    def send(self, params: Tensor, memory: Any, cohort: Cohort, shared: Shared) -> Sent:
        table, eta = self.split(params)
        who = list(cohort.cohort)
        rows = to_device(torch.tensor([self.row[client] for client in who], dtype=torch.int64), params.device)
        models, transpose = write(self.generate, eta, table[rows])

        def back(answer: Answer) -> tuple[Tensor, Answer]:
            d_eta, d_v = transpose(pull(answer, who, models))
            return torch.cat([torch.zeros_like(table).index_copy(0, rows, d_v).flatten(), d_eta]), answer

        return Sent(None, dict(zip(who, models, strict=True)), back, memory)

    @torch.no_grad()
    def model(self, params: Tensor, memory: Any, each: Described) -> Tensor:
        table, eta = self.split(params)
        who = self.row.get(int(each.who))
        return self.generate(eta, table.mean(0) if who is None else table[who])

    def state(self, params: Tensor, memory: Any) -> dict[str, Tensor]:
        """The table and the hypernetwork, by name."""
        table, eta = self.split(params)
        return {"descriptors": table.clone()} | self.networks(eta)


def write(
    generate: Callable[[Tensor, Tensor], Tensor], eta: Tensor, v: Tensor
) -> tuple[Tensor, Callable[[Tensor], Any]]:
    """(the models [N, D] of descriptors v [N, E], the transpose: rows [N, D] -> (d eta, d v [N, E]))."""
    return torch.func.vjp(torch.func.vmap(generate, in_dims=(None, 0)), eta, v)[:2]


def pull(answer: Answer, who: list[int], models: Tensor) -> Tensor:
    """The clients' deltas as rows like the models [N, D], each by its share of the mean; zero for others."""
    total, rows = _weight(answer.rows), torch.zeros_like(models)
    for row, client in enumerate(who):
        if client in answer.rows:
            rows[row] = (answer.rows[client].weight.x / total) * answer.rows[client].delta.x
    return rows


def _weight(rows: dict[int, Any]) -> float:
    return sum(float(row.weight.x) for row in rows.values())
