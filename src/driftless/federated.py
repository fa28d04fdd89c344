"""One round, whatever the algorithm: what the server does, and the one operation that its clients do.

`Federated` binds an algorithm to a task. `round(server, clients, plan)` is pure in the server; rows of clients are
staged in their place and counted only when the caller commits them. `train` is written for one client and knows no
other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from driftless.broadcast import Setting
from driftless.composition import Algorithm, Period
from driftless.descend import Local, Recipe, descend
from driftless.optim import Descent, Freeze, Sgd
from driftless.piece import Message, Piece, Rows, Samples, Sum, View, Weighted
from driftless.synchronise import NEVER, Schedule, select
from driftless.task import Passes, Task, TaskView


class Server(NamedTuple):
    """All that the server keeps between rounds."""

    round: int
    params: Tensor
    buffers: Tensor
    optimiser: Any
    memory: tuple
    broadcast: Any = ()  # what the broadcast remembers


class Shared(NamedTuple):
    """What goes to every client of a cohort."""

    round: Any
    lr: Any
    model: Any  # [D], or () where each client is sent its own
    buffers: Tensor
    told: tuple


class Each(NamedTuple):
    """What one client works on: what it was sent, its row, its samples, and what was drawn for it."""

    sent: Any  # its own model [D], or () where all are sent the same
    who: Any
    seen: Any  # the last round of this client that was counted, -1 for none
    row: dict[str, Tensor]
    samples: Samples
    batches: Any  # [K, B] rows of the samples, or a tuple of K index tensors
    steps: Any
    augment: Any
    draws: tuple
    weight: Any


class Reply(NamedTuple):
    """What an operation gives back: what leaves the client, its new row, and what only a simulation can look at."""

    said: Any
    row: dict[str, Tensor]
    watched: dict[str, Any]
    finite: Any


class Plan(NamedTuple):
    """What the edge decided for one round."""

    cohort: list[int]
    silent: frozenset[int]
    lr: float


@dataclass(frozen=True)
class Federated:
    """An algorithm on a task: the clients' optimiser, the server's, and how answers are weighted.

    `weighting` is "samples" or "uniform"; `clip` bounds the norm of the task gradient; `optimiser_state` is "fresh"
    each round or "kept"; `watch` names what the simulation looks at ("drift", and "divergence", which keeps every
    client's model); `setting` is what a broadcast's recipe is completed for.
    """

    algorithm: Algorithm
    task: Task
    initial: Tensor
    initial_buffers: Tensor
    client: Any = Sgd()
    server: Any = Descent()
    weighting: str = "samples"
    clip: float | None = None
    optimiser_state: str = "fresh"
    watch: frozenset[str] = frozenset()
    setting: Setting | None = None

    # --- what follows from the composition ---------------------------------------------------------------------------
    @property
    def pieces(self) -> tuple[Piece, ...]:
        return self.algorithm.pieces

    @cached_property
    def broadcast(self) -> Any:
        """What the server sends, completed for this task and federation."""
        return self.algorithm.broadcast.complete(self.task.space, self.setting)

    @cached_property
    def periods(self) -> Schedule:
        every = torch.ones(self.task.space.size)
        for period in self.algorithm.periods:
            every = torch.where(self.task.space.select(period.which), torch.clamp(every, min=period.every), every)
        return Schedule(every)

    @cached_property
    def buffer_periods(self) -> Schedule:
        space = self.task.space
        every = torch.ones(space.buffer_size)
        periods = [Period(lambda _: True, NEVER)] if space.policy == "local" else self.algorithm.periods
        for period in periods:
            every = torch.where(space.select_buffers(period.which), torch.clamp(every, min=period.every), every)
        return Schedule(every)

    @cached_property
    def kept(self) -> Tensor:
        """Which entries of a client's own model are kept between rounds: all where a piece reads it. int64 [<= D]."""
        reads = any("model" in p.reads for p in self.pieces) or "divergence" in self.watch
        return torch.arange(self.task.space.size) if reads else self.periods.own

    @cached_property
    def recipe(self) -> Recipe:
        step = None
        for part in self.algorithm.step_sizes:
            scale = torch.ones(self.task.space.size, dtype=self.initial.dtype) if step is None else step
            step = torch.where(self.task.space.select(part.which), scale * part.factor, scale)
        optimiser, order = self.optimiser, self.algorithm.alternate
        if order is not None:
            optimiser = Freeze(optimiser, self.task.space.select(order.which), order.steps)
        watched = any("gradient" in p.reads for p in self.pieces)
        return Recipe(self.task, optimiser, self.clip, step, watched)

    @property
    def optimiser(self) -> Any:
        """The clients' optimiser, in whatever order it moves the parameters."""
        return self.algorithm.client or self.client

    @property
    def server_optimiser(self) -> Any:
        return self.algorithm.server or self.broadcast.optimiser or self.server

    def fresh_row(self) -> dict[str, Tensor]:
        """The row of a client that never trained. Only what is read is there: a client of FedAvg has an empty one."""
        theta, slow, zero = self.initial, self.periods.slow, torch.zeros_like(self.initial)
        row = {}
        if len(self.kept):
            row["model"] = theta[self.kept]
        if len(slow):
            row |= {"sent": theta[slow], "steps": torch.zeros(len(self.step_groups[0]), dtype=theta.dtype)}
            if any(type(p).start is not Piece.start for p in self.pieces):
                row["start"] = theta[slow]
            if self.recipe.gradient:
                row["total"] = zero[slow]
        if len(self.buffer_periods.own):
            row["buffers"] = self.initial_buffers[self.buffer_periods.own]
            row["buffers_sent"] = self.initial_buffers[self.buffer_periods.slow]
        if any("fresh" in p.reads for p in self.pieces):
            row["touched"] = torch.zeros(0)  # a row of any kind says that its client was here
        row |= flatten("memory", tuple(p.client_memory(theta) for p in self.pieces))
        if self.optimiser_state == "kept":
            row |= flatten("optimiser", self.recipe.optimiser.init(theta))
        return {name: leaf.clone() for name, leaf in row.items()}

    @cached_property
    def templates(self) -> dict[str, Any]:
        """The trees that rows are flattened from."""
        memory = tuple(p.client_memory(self.initial) for p in self.pieces)
        return {"memory": memory, "optimiser": self.recipe.optimiser.init(self.initial)}

    @cached_property
    def step_groups(self) -> tuple[Tensor, Tensor]:
        """Steps are counted once a group: (where each group's first slow parameter is, which group each slow one
        has).
        """
        group = self.periods.group[self.periods.slow]
        keys, index = torch.unique(group, return_inverse=True)
        first = (
            torch.stack([(group == key).nonzero()[0, 0] for key in keys])
            if len(keys)
            else torch.zeros(0, dtype=torch.int64)
        )
        return first, index

    def start(self) -> Server:
        """The server before the first round."""
        params = self.broadcast.initial(self.initial)
        memory = tuple(p.server_memory(self.initial) for p in self.pieces)
        optimiser, own = self.server_optimiser.init(params), self.broadcast.memory(params)
        return Server(0, params, self.initial_buffers, optimiser, memory, own)

    # --- the server ---------------------------------------------------------------------------------------------------
    def shared(self, server: Server, lr: float) -> Shared:
        """What every client is told in this round."""
        told = tuple(p.tell(m) for p, m in zip(self.pieces, server.memory, strict=True))
        return Shared(server.round, lr, server.params, server.buffers, told)

    def round(self, server: Server, clients: Any, plan: Plan) -> tuple[Server, Any]:
        """One round: (the server after it, what clients answered). Rows are staged in `clients`, not yet counted."""
        shared = self.shared(server, plan.lr)
        cohort = clients.at(plan.cohort, plan.silent, server.round)
        sent = self.broadcast.send(server.params, server.broadcast, cohort, shared)
        model = () if sent.model is None else sent.model
        answer = cohort.map("train", shared._replace(model=model), sent.each)
        if not answer.answered:
            return server._replace(round=server.round + 1), answer
        (g, answer), memory = sent.back(answer), []
        for piece, old, report in zip(self.pieces, server.memory, answer.mean.reports, strict=True):
            g, new = piece.learn(old, g, report, len(answer.answered) / clients.registered)
            memory.append(new)
        params, optimiser = self.server_optimiser.step(g, server.params, server.optimiser)
        due, buffers_due = self.periods.closes(server.round), self.buffer_periods.closes(server.round)
        params, optimiser, memory = select(
            due, (params, optimiser, tuple(memory)), (server.params, server.optimiser, server.memory)
        )
        buffers = select(buffers_due, server.buffers - answer.mean.buffers, server.buffers)
        return Server(server.round + 1, params, buffers, optimiser, memory, sent.memory), answer

    # --- one client ---------------------------------------------------------------------------------------------------
    def own_model(self, sent: Tensor, row: dict[str, Tensor], seen: Any) -> Tensor:
        """The client's model as it last kept it, [D]: what is not kept is as it was sent."""
        if len(self.kept) == self.task.space.size:
            return row["model"]
        return sent.index_copy(0, self.kept, row["model"]) if len(self.kept) else sent

    def train(self, how: Any, shared: Shared, each: Each) -> Reply:
        """Everything that one client does in one round. Design: the slots in the order of `piece.py`'s picture."""
        periods, row, t = self.periods, each.row, shared.round
        opens, closes = periods.opens(t, each.seen), periods.closes(t)
        arrived = shared.model if isinstance(each.sent, tuple) else each.sent
        sent = select(opens, arrived, self._recall(arrived, row, "sent"))
        model = self.own_model(sent, row, each.seen)
        begin = sent if periods.plain else torch.where(opens & periods.shared, sent, model)
        memory = restore(self.templates["memory"], row, "memory") if self.pieces else ()
        buffers_sent, buffers = self._buffers(shared, each)
        lr, again = self._step_size(shared.lr), self._descend(how, buffers, each, shared.lr)
        task, passes = TaskView(self.task, buffers, how.differentiate), Passes(self.task, buffers)

        def views(local: Local | None, end: Tensor, message: Any = ()) -> list[View]:
            if not self.pieces:
                return []
            steps = steps_before if local is None else local.steps
            gradient = None if local is None or not self.recipe.gradient else local.total / (steps + (steps == 0))
            scratch = [()] * len(self.pieces) if local is None else local.scratch
            facts = (
                sent,
                model,
                start,
                end,
                steps,
                gradient,
                periods.shared,
                lr,
                t,
                each.seen < 0,
                each.who,
                each.samples,
                each.batches,
            )
            late = (task if local is None else task._replace(buffers=local.buffers), again, lambda: passes.step)
            return [
                View(*facts, d, s, c, x, message, *late)
                for d, s, c, x in zip(each.draws, shared.told, memory, scratch, strict=True)
            ]

        steps_before = self._steps(row, opens)
        start = end = begin
        for piece, view in zip(self.pieces, views(None, end), strict=True):
            end = piece.start(view, end)
        end, start = select(opens, end, model), select(opens, end, self._recall(end, row, "start", "sent"))
        objective, rules, scratch = passes.loss, [], []
        for place, (piece, view) in enumerate(zip(self.pieces, views(None, end), strict=True)):
            objective = piece.objective(view, objective)
            correction = piece.correct(view)
            scratch.append(() if correction is None else correction[0])
            if correction is not None:
                rules.append((place, correction[1]))
        total = (
            select(opens, torch.zeros_like(end), self._recall(torch.zeros_like(end), row, "total"))
            if self.recipe.gradient
            else ()
        )
        first = self.recipe.begin(end, buffers, tuple(scratch), steps_before, total)
        if self.optimiser_state == "kept":
            first = first._replace(optimiser=restore(self.templates["optimiser"], row, "optimiser"))
        last = descend(how, self.recipe, passes, objective, rules, first, self._feed(how, each), each.steps, lr)

        kept = last.theta
        for piece, view in zip(self.pieces, views(last, last.theta), strict=True):
            kept = piece.keep(view, kept)
        after = views(last, last.theta)
        delta = sent - kept
        masked = delta if closes is True else torch.where(closes, delta, 0.0)
        moved = select(self.buffer_periods.closes(t), buffers_sent - last.buffers, torch.zeros_like(last.buffers))
        reports = tuple(p.report(view) for p, view in zip(self.pieces, after, strict=True))
        reports = select(closes, reports, tree_map(torch.zeros_like, reports))
        message = Message(masked, moved, reports, torch.as_tensor(each.weight, dtype=torch.float64))
        for piece, view in zip(self.pieces, after, strict=True):
            message = piece.upload(view, message)
        if closes is not True:  # what is not due stays, whatever a piece made of it
            message = message._replace(delta=torch.where(closes, message.delta, 0.0))
        remembered = tuple(p.remember(v) for p, v in zip(self.pieces, views(last, last.theta, message), strict=True))
        new = self._row(each, sent, start, kept, last, buffers_sent, select(closes, remembered, memory))
        finite = torch.isfinite(kept).all() & torch.isfinite(message.delta).all()
        mark = self.broadcast.delta
        said = message._replace(
            delta=mark(message.delta),
            buffers=Weighted(message.buffers),
            weight=Sum(message.weight) if mark is not Rows else Rows(message.weight),
        )
        return Reply(said, new, self._watch(delta, model, kept, closes, last, each), finite)

    def predictor(
        self, how: Any, theta: Tensor, buffers: Tensor, shared: Shared, each: Each
    ) -> Callable[[Any], Tensor]:
        """What a client predicts with, x -> scores, at the global model theta [D]."""
        at, own_buffers, views = self._predicting(how, theta, buffers, shared, each)
        predict = lambda x: self.task.space.outputs(at, x, own_buffers)  # noqa: E731
        for piece, view in zip(self.pieces, views, strict=True):
            predict = piece.predict(view._replace(end=at)) or predict
        return predict

    def predicting(self, how: Any, theta: Tensor, buffers: Tensor, shared: Shared, each: Each) -> tuple[Tensor, Tensor]:
        """The parameters and buffers that a client predicts with, at the global model theta [D]: what pieces make of
        its own.
        """
        return self._predicting(how, theta, buffers, shared, each)[:2]

    def observed(self, how: Any, theta: Tensor, buffers: Tensor, shared: Shared, each: Each) -> dict[str, Any]:
        """The pictures and figures that pieces make of a client, by name, at the global model theta [D]."""
        at, _, views = self._predicting(how, theta, buffers, shared, each)
        return {
            name: what
            for p, view in zip(self.pieces, views, strict=True)
            for name, what in p.observe(view._replace(end=at)).items()
        }

    def _predicting(
        self, how: Any, theta: Tensor, buffers: Tensor, shared: Shared, each: Each
    ) -> tuple[Tensor, Tensor, list[View]]:
        mine, own_buffers = self.personal_model(theta, buffers, each)
        own, zero = self.own_model(theta, each.row, each.seen), torch.zeros(())
        memory = restore(self.templates["memory"], each.row, "memory") if self.pieces else ()
        late = (TaskView(self.task, own_buffers, how.differentiate), self._descend(how, own_buffers, each, shared.lr))
        views = [
            View(
                theta,
                own,
                mine,
                mine,
                zero,
                None,
                self.periods.shared,
                self._step_size(shared.lr),
                shared.round,
                each.seen < 0,
                each.who,
                each.samples,
                each.batches,
                draws,
                told,
                client,
                (),
                (),
                *late,
            )
            for told, client, draws in zip(shared.told, memory, each.draws, strict=True)
        ]
        at = mine
        for piece, view in zip(self.pieces, views, strict=True):
            at = piece.personal(view._replace(end=at), at)
        return at, own_buffers, views

    def personal_model(self, theta: Tensor, buffers: Tensor, each: Each) -> tuple[Tensor, Tensor]:
        """The global model with the client's own personal parameters and buffers; as it is for a client never seen."""
        if each.seen < 0:
            return theta, buffers
        own = self.own_model(theta, each.row, each.seen)
        mine = torch.where(self.periods.never, own, theta) if self.periods.personal else theta
        if self.buffer_periods.personal:
            kept = buffers.index_copy(0, self.buffer_periods.own, each.row["buffers"])
            buffers = torch.where(self.buffer_periods.never, kept, buffers)
        return mine, buffers

    def adapt(self, how: Any, theta: Tensor, buffers: Tensor, shared: Shared, each: Each) -> tuple[Tensor, Tensor]:
        """A client's parameters and buffers after one round's local work on the loss alone, from what it predicts
        with.
        """
        mine, own_buffers = self.predicting(how, theta, buffers, shared, each)
        last = self._again(how, own_buffers, each, self._step_size(shared.lr), mine)
        return last.theta, last.buffers

    def _step_size(self, lr: Any) -> Any:
        return lr if self.recipe.scale is None else lr * self.recipe.scale

    def _descend(self, how: Any, buffers: Tensor, each: Each, lr: Any) -> Callable[..., Tensor]:
        """`view.descend`: a second training of this client, on the round's batches and with its step size unless
        others are given.
        """
        usual = self._step_size(lr)

        def again(
            start: Tensor,
            objective: Any = None,
            batches: Any = None,
            optimiser: Any = None,
            lr: Any = None,
            correct: Any = None,
        ) -> Tensor:
            return self._again(
                how, buffers, each, usual if lr is None else lr, start, objective, batches, optimiser, correct
            ).theta

        return again

    def _again(
        self,
        how: Any,
        buffers: Tensor,
        each: Each,
        lr: Any,
        origin: Tensor,
        objective: Any = None,
        batches: Any = None,
        optimiser: Any = None,
        correct: Any = None,
    ) -> Local:
        recipe = self.recipe._replace(optimiser=optimiser or self.optimiser, gradient=False)
        passes = Passes(self.task, buffers)
        rules = [] if correct is None else [(0, correct)]
        feed, steps = (
            (self._feed(how, each), each.steps)
            if batches is None
            else (lambda k: each.samples.batch(batches[k]), len(batches))
        )
        return descend(
            how,
            recipe,
            passes,
            objective or passes.loss,
            rules,
            recipe.begin(origin, buffers, ((),) * len(rules)),
            feed,
            steps,
            lr,
        )

    def embed(self, how: Any, shared: Shared, each: Each) -> Reply:
        """The first half of a pipeline on the client: its descriptor."""
        v = self.broadcast.embed(shared.model, each.samples.batch(each.batches[0]))
        return Reply(Rows(v), {}, {}, torch.isfinite(v).all())

    def embed_back(self, how: Any, shared: Shared, each: Each) -> Reply:
        """The last half of a pipeline on the client: the transpose of `embed` on the same batch at what was sent, d
        v.
        """
        batch = each.samples.batch(each.batches[0])
        d_phi = how.differentiate(lambda phi: ((self.broadcast.embed(phi, batch) * each.sent).sum(), ()), shared.model)[
            0
        ]
        return Reply(Sum(d_phi), {}, {}, torch.isfinite(d_phi).all())

    def _feed(self, how: Any, each: Each) -> Callable[[int], Any]:
        augment, places = self.task.augment, each.samples.places(each.batches)
        if augment is None:
            return lambda k: how.take(each.samples.pool, places[k])

        def batch(k: int) -> Any:
            x, y = how.take(each.samples.pool, places[k])
            return augment(x, tree_map(lambda leaf: leaf[k][: len(x)], each.augment)), y

        return batch

    def _recall(self, base: Tensor, row: dict[str, Tensor], *names: str) -> Tensor:
        """`base` with its slow entries from the first of these that the row has."""
        for name in names:
            if name in row:
                return base.index_copy(0, self.periods.slow, row[name])
        return base

    def _steps(self, row: dict[str, Tensor], opens: Any) -> Tensor:
        if "steps" not in row:
            return torch.zeros((), dtype=self.initial.dtype)
        before = torch.zeros_like(self.initial).index_copy(0, self.periods.slow, row["steps"][self.step_groups[1]])
        return torch.where(opens, 0.0, before)

    def _buffers(self, shared: Shared, each: Each) -> tuple[Tensor, Tensor]:
        """(the buffers as sent, the buffers to begin with): the client's own where no synchronisation came."""
        periods, arrived = self.buffer_periods, shared.buffers
        if "buffers" not in each.row:
            return arrived, arrived
        opens = periods.opens(shared.round, each.seen)
        sent = torch.where(opens, arrived, arrived.index_copy(0, periods.slow, each.row["buffers_sent"]))
        own = arrived.index_copy(0, periods.own, each.row["buffers"])
        return sent, torch.where(opens & periods.shared, sent, own)

    def _row(
        self, each: Each, sent: Tensor, start: Tensor, kept: Tensor, last: Local, buffers_sent: Tensor, memory: tuple
    ) -> dict:
        slow, new = self.periods.slow, {}
        vectors = {
            "model": (kept, self.kept),
            "sent": (sent, slow),
            "start": (start, slow),
            "total": (last.total, slow),
        }
        for name, (vector, where) in vectors.items():
            if name in each.row:
                new[name] = vector[where]
        if "touched" in each.row:
            new["touched"] = each.row["touched"]
        if "steps" in each.row:
            new["steps"] = last.steps[slow][self.step_groups[0]]
        if "buffers" in each.row:
            new |= {
                "buffers": last.buffers[self.buffer_periods.own],
                "buffers_sent": buffers_sent[self.buffer_periods.slow],
            }
        new |= flatten("memory", memory)
        return new | (flatten("optimiser", last.optimiser) if self.optimiser_state == "kept" else {})

    def _watch(
        self, delta: Tensor, model: Tensor, kept: Tensor, closes: Any, last: Local, each: Each
    ) -> dict[str, Any]:
        """What a simulation looks at: sums over clients, never sent."""
        steps = torch.as_tensor(each.steps, dtype=torch.float64)
        reached = (
            steps
            if closes is True
            else (last.steps * closes).sum(dtype=torch.float64) / self.periods.shared.sum().clamp(min=1)
        )
        watched = {"loss": Sum(last.loss), "steps": Sum(steps), "reached": Sum(reached)}
        if "drift" in self.watch:
            delta = delta if self.periods.plain else torch.where(self.periods.shared, delta, 0.0)
            apart = (
                delta if self.broadcast.common else self.initial - kept
            )  # spread the same, if all were sent one model
            zero = torch.zeros(len(self.task.space.layers), dtype=delta.dtype)
            squares = zero.index_add(0, self._layer_index, apart * apart)
            norm = (squares if self.broadcast.common else delta * delta).sum().sqrt()
            watched |= {"squares": Sum(squares), "offset": Sum(apart)}
            watched |= {"norm": Sum(norm), "norm_squared": Sum(norm * norm)}
        if "divergence" in self.watch:
            old, new = ((where - self.initial) * self.periods.shared for where in (model, kept))
            watched |= {
                "moved": Sum(new - old),
                "grown": Sum(new.double().square().sum() - old.double().square().sum()),
            }
        return watched

    @cached_property
    def _layer_index(self) -> Tensor:
        return self.task.space.layer_index()


def flatten(prefix: str, tree: Any) -> dict[str, Tensor]:
    """The leaves of a tree by name, `prefix.0`, `prefix.1`, ..."""
    leaves = tree_leaves(tree)
    return {f"{prefix}.{i}": leaf for i, leaf in enumerate(leaves)}


def restore(template: Any, named: dict[str, Tensor], prefix: str) -> Any:
    """The tree of that template from leaves by name: the inverse of `flatten`."""
    leaves, spec = tree_flatten(template)
    return tree_unflatten([named[f"{prefix}.{i}"] for i in range(len(leaves))], spec)
