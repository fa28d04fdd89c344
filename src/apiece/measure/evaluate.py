"""What is measured of the models: global, personal and adapted accuracy, of seen and unseen clients (definitions in
docs/design.md).
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
from apiece.measure.scoring import CHUNK, score, score_each, score_together
from apiece.vector.task import Passes, accuracy

PROBE, PROBED = 64, 10  # gradient dissimilarity: samples per client, clients
MANY, TOGETHER = 20, 500  # a call of vmap pays off with so many small models; at most so many samples
Asked = dict[int, Tensor]  # client -> its test samples
Ways = dict[str, float]  # accuracies by `Piece.without`


class At(NamedTuple):
    """What a round leaves to measure: the global model, the server, and the step size of clients' local work."""

    theta: Tensor
    buffers: Tensor
    server: Server
    lr: float


class Personal(NamedTuple):
    """One accuracy per client; clients without test samples have none."""

    accuracy: dict[int, float]

    def summary(self, prefix: str) -> dict[str, float]:
        """Mean, standard deviation and mean of the worst tenth."""
        values = np.sort(np.array(list(self.accuracy.values())))
        if not len(values):
            return {}
        worst = values[: max(1, len(values) // 10)]
        return {
            f"{prefix}_mean": float(values.mean()),
            f"{prefix}_std": float(values.std()),
            f"{prefix}_worst_decile": float(worst.mean()),
        }


class Panel(NamedTuple):
    """Which clients an evaluation before the end takes: at most `size`, evenly spread. They are the same each time, or,
    if `turns` says how many rounds lie between evaluations, the next ones until all were taken.
    """

    size: int
    turns: int = 0

    def of(self, clients: list[int], round: int) -> list[int]:
        if not self.turns:
            return _spread(clients, self.size)
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
        """Whether every client predicts with the global model."""
        personal = self.federated.setup.periods.personal or self.federated.setup.buffer_periods.personal
        plain = not any(p.fills("personal", "predict") for p in self.federated.setup.pieces)
        return self.federated.setup.broadcast.common and not personal and plain

    @property
    def by_model(self) -> bool:
        """Whether each client's prediction needs only a model, so that one call can evaluate many models."""
        plain = not any(p.fills("predict") or p.without for p in self.federated.setup.pieces)
        return plain and isinstance(self.federation.test_pool[0], Tensor)

    def __call__(self, server: Server, lr: float, everyone: bool) -> tuple[dict[str, Any], dict[int, float]]:
        """(the metrics after a round with this step size, by name; the accuracy of each client that was measured).

        With `everyone` all clients are measured, otherwise the panel.
        """
        task, metrics = self.federated.setup.task, {}
        theta, buffers, _ = global_model(self.federated, server, self.clients, self._threads)
        common = self.federated.setup.broadcast.common
        ranks, rows = self.clients.ranks, self._all if common else self._all[:0]
        predict = lambda x: task.space.outputs(theta, x, buffers)
        overall = ranks.from_first(lambda: score(task, predict, self.federation.test_pool, rows, self._threads))
        if len(overall.values):
            metrics |= {"global_accuracy": overall.mean, "global_loss": overall.loss}
        seen, unseen = list(self.federation.participants), list(self.federation.unseen)
        if not everyone:
            seen, unseen = self.panel.of(seen, server.round), self.panel.of(unseen, server.round)
            if any(p.fills("personal") for p in self.federated.setup.pieces):
                # a piece may train a client that has not trained yet for twenty passes: only at the end
                unseen = []
                seen = [c for c in seen if self.clients.last_round(c) >= 0] if self.clients.fresh else seen
        asked = {c: rows for c in [*seen, *unseen] if len(rows := self.federation.test_rows(c))}
        if self.uniform:
            ways = {client: {"": overall.mean_of(rows)} for client, rows in asked.items()}
        else:
            at = At(theta, buffers, server, lr)
            ways = self._shared(list(asked), lambda some: self._ways({c: asked[c] for c in some}, at))
        accuracy = {client: own[""] for client, own in ways.items()}
        metrics |= Personal({c: accuracy[c] for c in seen if c in accuracy}).summary("personal_accuracy")
        strangers = [accuracy[c] for c in unseen if c in accuracy]
        metrics |= {"unseen_accuracy": float(np.mean(strangers))} if strangers else {}
        for name in {p.without for p in self.federated.setup.pieces} - {""}:
            for prefix, who in (("personal", seen), ("unseen", unseen)):
                values = [ways[c][name] for c in who if c in ways]
                metrics |= {f"{prefix}_accuracy_{name}": float(np.mean(values))} if values else {}
        return metrics | ranks.from_first(lambda: self._dissimilarity(theta, buffers)), accuracy

    def adapted(self, server: Server, lr: float, most: int) -> dict[str, float]:
        """Accuracies after one round's local work, which starts from the model that the client would predict with: of
        at most `most` participants, and of unseen clients.
        """
        theta, buffers, _ = global_model(self.federated, server, self.clients, self._threads)
        out = {}
        for name, who in (
            ("adapted_accuracy", self.federation.participants),
            ("unseen_adapted_accuracy", self.federation.unseen),
        ):
            able = [c for c in who if len(self.federation.test_rows(c)) and self.clients.steps(c, server.round)]

            def measure(some: list[int]) -> dict[int, float]:
                jobs = (partial(self._after_work, c, At(theta, buffers, server, lr)) for c in some)
                return dict(zip(some, self._threads.in_order(jobs), strict=True))

            values = self._shared(_spread(able, most), measure)
            out |= {name: float(np.mean(list(values.values())))} if values else {}
        return out

    def _shared(self, clients: list[int], measure: Callable[[list[int]], dict[int, Any]]) -> dict[int, Any]:
        """The measurements of these clients, in their order, made by all ranks."""
        parts = self.clients.ranks.everyone(measure(self.clients.ranks.share(clients)))
        return _joined(parts, clients)

    def _ways(self, asked: Asked, at: At) -> dict[int, Ways]:
        """Clients' accuracies by `Piece.without`: many models per call if the lift has many clients per call, or if
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
            return [{name: of[place].mean for name, of in scores.items()} for place in range(len(some))]

        most = max(1, self._threads.chunk) if task.metric is accuracy else 1  # other metrics' outputs may be any tree
        jobs = self._jobs(measured, asked, CHUNK, most, at.server.round)
        done = (job() for job in jobs) if _few(asked) else self._threads.in_order(jobs)
        return dict(zip(asked, chain.from_iterable(done), strict=True))

    def _together(self, asked: Asked, lift: Vectorized, samples: int, at: At) -> dict[int, Ways]:
        """The same, in calls of at most `samples` samples and as many models as the lift has clients per call."""
        task, pool = self.federated.setup.task, self.federation.test_pool

        def measured(some: list[ClientTask]) -> dict[int, Ways]:
            models = [predicting(self.federated.setup, Loop(), *self._before(each, at)) for each in some]
            scores = score_together(task, lift, models, pool, [asked[each.who] for each in some])
            return {each.who: {"": of.mean} for each, of in zip(some, scores, strict=True)}

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

    def _after_work(self, client: int, at: At) -> float:
        each = self.clients.each(client, at.server.round)
        predict = adapted(self.federated.setup, Loop(), *self._before(each, at))
        return score(
            self.federated.setup.task, predict, self.federation.test_pool, self.federation.test_rows(client)
        ).mean

    def _dissimilarity(self, theta: Tensor, buffers: Tensor) -> dict[str, float]:
        """The dissimilarity of a few clients' gradients at the global model, if there is one."""
        probes = _spread(list(self.federation.participants), PROBED) if self.federated.setup.broadcast.common else []
        gradients = [g for c in probes if (g := self._gradient(c, theta, buffers)) is not None]
        return {"gradient_dissimilarity": dissimilarity(gradients)} if gradients else {}

    def _gradient(self, client: int, theta: Tensor, buffers: Tensor) -> Tensor | None:
        samples = self.federation.samples(client)
        if not samples.size:
            return None
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


def _spread(clients: list[int], count: int) -> list[int]:
    """At most `count` clients, evenly spread over the list."""
    if len(clients) <= count:
        return list(clients)
    return [clients[i * len(clients) // count] for i in range(count)]
