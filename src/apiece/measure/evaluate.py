"""What is measured of the models: global, personal and adapted values of each metric, of seen and unseen clients
(definitions in docs/design.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from apiece.engine.clients import Clients
from apiece.engine.federated import Federated
from apiece.engine.predicting import adapted, predicting, predictors, remakes
from apiece.engine.state import ClientTask, Server
from apiece.engine.stepping import Loop
from apiece.errors import UserError
from apiece.lifts.lift import Vectorized
from apiece.lifts.side_by_side import SideBySide
from apiece.measure.drift import dissimilarity
from apiece.measure.global_average import HELD, global_model
from apiece.measure.scoring import CHUNK, Values, score, score_each, score_together
from apiece.report.metrics import tenth
from apiece.system.device import to_host
from apiece.vector.metric import Metric
from apiece.vector.metrics import BUILT_IN
from apiece.vector.task import Passes

PROBE, PROBED = 64, 10  # gradient dissimilarity: samples per client, clients
MANY, TOGETHER = 20, 500  # a call of vmap pays off with so many small models; at most so many samples
Asked = dict[int, Tensor]  # client -> its test samples
Ways = dict[str, Values]  # by `Piece.without`


class At(NamedTuple):
    """What a round leaves to measure: the global model, the server, and the step size of clients' local work."""

    theta: Tensor
    buffers: Tensor
    server: Server
    lr: float


def summary(metric: Metric, measured: Iterable[Values]) -> dict[str, float]:
    """Mean, standard deviation and mean of the worst tenth, over the clients that have a value of the metric."""
    values = np.sort(np.array([own[metric.name] for own in measured if metric.name in own]))
    if not len(values):
        return {}
    count = tenth(len(values))
    worst = values[:count] if metric.higher else values[-count:]
    prefix = f"personal_{metric.name}"
    return {
        f"{prefix}_mean": float(values.mean()),
        f"{prefix}_std": float(values.std()),
        f"{prefix}_worst_decile": float(worst.mean()),
    }


def mean_of(metric: Metric, measured: Iterable[Values], key: str) -> dict[str, float]:
    """The mean over the clients that have a value of the metric, under this key; empty if none has."""
    values = [own[metric.name] for own in measured if metric.name in own]
    return {key: float(np.mean(values))} if values else {}


class Panel(NamedTuple):
    """Which clients an evaluation before the end takes: at most `size`, evenly spread. They are the same each time, or,
    if `turns` says how many rounds lie between evaluations, the next ones until all were taken.
    """

    size: int
    turns: int = 0

    def of(self, clients: list[int], round: int) -> list[int]:
        if not self.turns:
            return spread(clients, self.size)
        parts = max(1, -(-len(clients) // self.size))
        return clients[round // self.turns % parts :: parts]


class Evaluation:
    """All measurements of a run, on its panel of clients. With several ranks, each measures a share of the clients, the
    first measures the global model, and all ranks receive the results.
    """

    def __init__(self, federated: Federated, federation: Any, clients: Clients, panel: Panel, workers: int):
        self.federated, self.federation, self.clients, self.panel = federated, federation, clients, panel
        self._threads, self._apart = SideBySide(HELD // federated.setup.task.space.size, max(workers, 1)), False
        self._all = torch.arange(len(tree_leaves(federation.test_pool[1])[0]), device=federated.setup.initial.device)

    @property
    def uniform(self) -> bool:
        """Whether every client predicts with the global model, and its outputs for a sample are the same in any batch.
        """
        personal = self.federated.setup.periods.personal or self.federated.setup.buffer_periods.personal
        plain = not any(p.fills("personal", "predict") for p in self.federated.setup.pieces)
        alone = not self.federated.setup.task.space.by_batch
        return self.federated.setup.broadcast.common and not personal and plain and alone

    @property
    def by_model(self) -> bool:
        """Whether each client's prediction needs only a model, so that one call can evaluate many models. It cannot
        where a model normalizes by the batch: such a call fills up clients' batches to one size.
        """
        plain = not any(p.fills("predict") or p.without for p in self.federated.setup.pieces)
        alone = not self.federated.setup.task.space.by_batch
        return plain and alone and isinstance(self.federation.test_pool[0], Tensor)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return self.federated.setup.task.metrics

    def __call__(self, server: Server, lr: float, everyone: bool) -> tuple[dict[str, Any], dict[int, Values]]:
        """(the metrics after a round with this step size, by name; the values of each client that was measured).

        With `everyone` all clients are measured, otherwise the panel.
        """
        task, found = self.federated.setup.task, {}
        theta, buffers, _ = global_model(self.federated, server, self.clients, self._threads)
        common = self.federated.setup.broadcast.common
        ranks, rows = self.clients.ranks, self._all if common else self._all[:0]
        predict = lambda x: task.space.outputs(theta, x, buffers)
        overall = ranks.from_first(lambda: score(task, predict, self.federation.test_pool, rows, self._threads))
        if len(overall.targets):
            found |= {f"global_{name}": value for name, value in overall.of(self.metrics).items()}
            found["global_loss"] = overall.loss
        seen, unseen = list(self.federation.participants), list(self.federation.unseen)
        if not everyone:
            seen, unseen = self.panel.of(seen, server.round), self.panel.of(unseen, server.round)
            if any(p.fills("personal") for p in self.federated.setup.pieces):
                # a piece may train a client that has not trained yet for twenty passes: only at the end
                unseen = []
                seen = [c for c in seen if self.clients.last_round(c) >= 0] if self.clients.fresh else seen
        asked = {c: rows for c in [*seen, *unseen] if len(rows := self.federation.test_rows(c))}
        if self.uniform:
            places = zip(asked, to_host(list(asked.values())), strict=True)
            ways = {client: {"": overall.of(self.metrics, rows)} for client, rows in places}
        else:
            at = At(theta, buffers, server, lr)
            ways = self._shared(list(asked), lambda some: self._ways({c: asked[c] for c in some}, at))
        for metric in self.metrics:
            found |= self._over_clients(metric, ways, seen, unseen)
        values = {client: own[""] for client, own in ways.items()}
        return found | ranks.from_first(lambda: self._dissimilarity(theta, buffers)), values

    def _over_clients(
        self, metric: Metric, ways: dict[int, Ways], seen: list[int], unseen: list[int]
    ) -> dict[str, float]:
        """A metric's means over the clients that trained, and over those that never do, with and without a piece."""
        found = summary(metric, (ways[c][""] for c in seen if c in ways))
        found |= mean_of(metric, (ways[c][""] for c in unseen if c in ways), f"unseen_{metric.name}")
        for name in self.federated.setup.ways[1:]:
            for prefix, who in (("personal", seen), ("unseen", unseen)):
                found |= mean_of(metric, (ways[c][name] for c in who if c in ways), f"{prefix}_{metric.name}_{name}")
        return found

    def adapted(self, server: Server, lr: float, most: int) -> dict[str, float]:
        """The metrics after one round's local work, which starts from the model that the client would predict with: of
        at most `most` participants, and of unseen clients.
        """
        theta, buffers, _ = global_model(self.federated, server, self.clients, self._threads)
        out = {}
        for prefix, who in (("adapted", self.federation.participants), ("unseen_adapted", self.federation.unseen)):
            able = [c for c in who if self.federation.test_size(c) and self.clients.steps(c, server.round)]

            def measure(some: list[int]) -> dict[int, Values]:
                jobs = (partial(self._after_work, c, At(theta, buffers, server, lr)) for c in some)
                return dict(zip(some, self._threads.in_order(jobs), strict=True))

            values = self._shared(spread(able, most), measure).values()
            for metric in self.metrics:
                out |= mean_of(metric, values, f"{prefix}_{metric.name}")
        return out

    def _shared(self, clients: list[int], measure: Callable[[list[int]], dict[int, Any]]) -> dict[int, Any]:
        """The measurements of these clients, in their order, made by all ranks."""
        parts = self.clients.ranks.everyone(measure(self.clients.ranks.share(clients)))
        return _joined(parts, clients)

    def _ways(self, asked: Asked, at: At) -> dict[int, Ways]:
        """Clients' values by `Piece.without`: many models per call if the lift has many clients per call, or if
        models and test sets are so small that calls cost more than arithmetic.
        """
        lift = self.clients.lift
        if self.by_model and isinstance(lift, Vectorized):
            return self._together(asked, lift, CHUNK * lift.chunk, at)
        if self.by_model and _few(asked) and self._threads.chunk >= MANY and not self._apart:
            try:
                return self._together(asked, self._threads, TOGETHER, at)
            except UserError:
                raise
            except Exception:  # vmap cannot run every module; any other error occurs again below
                self._apart = True
        return self._each(asked, at)

    def _each(self, asked: Asked, at: At) -> dict[int, Ways]:
        """The same with one pass per client; small clients are measured in groups."""
        task, pool = self.federated.setup.task, self.federation.test_pool

        def measured(some: list[ClientTask]) -> list[Ways]:
            found = [predictors(self.federated.setup, Loop(), *self._before(each, at)) for each in some]
            rows = [asked[each.who] for each in some]
            if len(some) == 1:
                scores = {name: [score(task, predict, pool, rows[0])] for name, predict in found[0].items()}
            else:
                scores = {name: score_each(task, [own[name] for own in found], pool, rows) for name in found[0]}
            return [{name: of[i].of(task.metrics) for name, of in scores.items()} for i in range(len(some))]

        ours = BUILT_IN.issuperset(task.metrics)  # a metric of the user's is asked for one client at a time
        most = max(1, self._threads.chunk) if ours else 1
        jobs = self._jobs(measured, asked, CHUNK, most, at.server.round)
        done = (job() for job in jobs) if _few(asked) else self._threads.in_order(jobs)
        return dict(zip(asked, chain.from_iterable(done), strict=True))

    def _together(self, asked: Asked, lift: Vectorized, samples: int, at: At) -> dict[int, Ways]:
        """The same, in calls of at most `samples` samples and as many models as the lift has clients per call."""
        task, pool = self.federated.setup.task, self.federation.test_pool

        def measured(some: list[ClientTask]) -> dict[int, Ways]:
            models = [predicting(self.federated.setup, Loop(), *self._before(each, at)) for each in some]
            scores = score_together(task, lift, models, pool, [asked[each.who] for each in some])
            return {each.who: {"": of.of(task.metrics)} for each, of in zip(some, scores, strict=True)}

        alike = {client: asked[client] for client in sorted(asked, key=lambda client: len(asked[client]))}
        return _joined(lift.in_order(self._jobs(measured, alike, samples, lift.chunk, at.server.round)), asked)

    def _jobs(self, measured: Callable, asked: Asked, samples: int, most: int, round: int) -> Iterator[Callable]:
        """One measurement per group of clients. Whoever asks for the next group reads the data of its clients, because
        threads that read wait for one another.
        """
        for some in _groups(asked, samples, most):
            yield partial(measured, [self._looked_at(client, round) for client in some])

    def _before(self, each: ClientTask, at: At) -> tuple:
        """What a client's predictor is made from: the global model as it receives it, and its own state."""
        theta = self.federated.setup.broadcast.model(at.theta, at.server.broadcast, each)
        return theta, at.buffers, self.federated.shared(at.server, at.lr), each

    def _looked_at(self, client: int, round: int) -> ClientTask:
        """The client's state; if a piece may train it before it predicts, also the samples that it trains on."""
        newcomer = self.clients.last_round(client) < 0
        works = any(remakes(p, newcomer) or p.fills("predict") for p in self.federated.setup.pieces)
        return self.clients.each(client, round) if works else self.clients.at_rest(client)

    def _after_work(self, client: int, at: At) -> Values:
        each = self.clients.each(client, at.server.round)
        predict = adapted(self.federated.setup, Loop(), *self._before(each, at))
        return score(
            self.federated.setup.task, predict, self.federation.test_pool, self.federation.test_rows(client)
        ).of(self.metrics)

    def _dissimilarity(self, theta: Tensor, buffers: Tensor) -> dict[str, float]:
        """The dissimilarity of a few clients' gradients at the global model, if there is one."""
        probes = spread(list(self.federation.participants), PROBED) if self.federated.setup.broadcast.common else []
        able = (client for client in probes if self.federation.samples(client).size)
        found = dissimilarity(self._gradient(client, theta, buffers) for client in able)
        return {} if found is None else {"gradient_dissimilarity": found}

    def _gradient(self, client: int, theta: Tensor, buffers: Tensor) -> Tensor:
        samples = self.federation.samples(client)
        passes = Passes(self.federated.setup.task, buffers)
        batch = samples.batch(torch.arange(min(PROBE, int(samples.size)), device=samples.index.device))
        gradient = Loop().differentiate(passes.with_buffers(passes.loss, batch), theta)[0]
        return torch.where(self.federated.setup.periods.shared, gradient, 0.0)


def _few(asked: Asked) -> bool:
    """Whether clients have so few samples that calls cost more than arithmetic: threads wait for the interpreter."""
    return sum(map(len, asked.values())) < CHUNK * len(asked)


def _joined(parts: Iterable[dict[int, Any]], clients: Iterable[int]) -> dict[int, Any]:
    """The results of all parts, in the order of these clients."""
    found = {client: value for part in parts for client, value in part.items()}
    return {client: found[client] for client in clients}


def _groups(asked: Asked, samples: int, clients: int) -> Iterator[list[int]]:
    """The clients in groups, in order: at most `samples` samples and `clients` clients each, or one client."""
    some, size = list[int](), 0
    for client, rows in asked.items():
        if some and (size + len(rows) > samples or len(some) == clients):
            yield some
            some, size = [], 0
        some.append(client)
        size += len(rows)
    if some:
        yield some


def spread(clients: list[int], count: int) -> list[int]:
    """At most `count` clients, evenly spread over the list."""
    if len(clients) <= count:
        return list(clients)
    return [clients[i * len(clients) // count] for i in range(count)]
