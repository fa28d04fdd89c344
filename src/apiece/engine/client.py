"""What a client does: the operations of an algorithm, each written for one client that knows no other.

`train` is everything that one client does in a round, its slots in the order of `piece.py`'s picture.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from apiece.algebra.periods import select
from apiece.algebra.piece import Message, Rows, Sum, View, Weighted
from apiece.engine.bound import Bound
from apiece.engine.descend import Local, descend
from apiece.engine.reduce import marked
from apiece.engine.state import Each, Reply, Shared, finite, restore
from apiece.system.device import scalar
from apiece.vector.task import Passes, TaskView


class OnClient(Bound):
    """The operations that a cohort is asked for by name: `train`, and a pipeline's `embed` and `embed_back`."""

    def train(self, how: Any, shared: Shared, each: Each) -> Reply:
        """Everything that one client does in one round. Design: the slots in the order of `piece.py`'s picture."""
        periods, row, t = self.periods, each.row, shared.round
        opens, closes = periods.opens(t, each.seen), periods.closes(t)
        arrived = shared.model if isinstance(each.sent, tuple) else each.sent
        sent = select(opens, arrived, self._recall(arrived, row, "sent"))
        model = self.own_model(sent, row, each.seen)
        begin = sent if periods.plain else torch.where(opens & periods.shared, sent, model)
        memory = restore(self.templates["memory"], row, "memory")
        buffers_sent, buffers = self._buffers(shared, each)
        lr, again = self._step_size(shared.lr), self._descend(how, buffers, each, shared.lr)
        task, passes = TaskView(self.task, buffers, how.differentiate), Passes(self.task, buffers)
        fresh, planned = scalar(each.seen < 0, sent), scalar(each.steps, sent, sent.dtype) if self.pieces else None
        told = self._told(shared.told, row, opens)

        def views(local: Local | None, end: Tensor, message: Any = ()) -> list[View]:
            if not self.pieces:
                return []
            steps = steps_before if local is None else local.steps
            gradient = None if local is None or not self.recipe.gradient else local.total / (steps + (steps == 0))
            scratch = [()] * len(self.pieces) if local is None else local.scratch
            course = (sent, model, start, end, steps, gradient)
            facts = (periods.shared, lr, t, fresh, each.who, each.samples, planned, each.batches)
            late = (task if local is None else task._replace(buffers=local.buffers), again, lambda: passes.step)
            return [
                View(*course, *facts, d, s, c, x, message, *late, alike, self.even)
                for d, s, c, x, alike in zip(
                    each.draws, told.values(), memory.values(), scratch, self.alike, strict=True
                )
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
        reports = tuple(marked(p.report(view), p) for p, view in zip(self.pieces, after, strict=True))
        reports = select(closes, reports, tree_map(torch.zeros_like, reports))
        message = Message(masked, moved, reports, scalar(each.weight, delta, torch.float64))
        for piece, view in zip(self.pieces, after, strict=True):
            message = piece.upload(view, message)
        if closes is not True:  # what is not due stays, whatever a piece made of it
            message = message._replace(delta=torch.where(closes, message.delta, 0.0))
        last_views = views(last, last.theta, message)
        remembered = self.by_piece(p.remember(view) for p, view in zip(self.pieces, last_views, strict=True))
        new = self._row(each, sent, start, kept, last, buffers_sent, select(closes, remembered, memory), told)
        mark = self.broadcast.delta
        said = message._replace(
            delta=mark(message.delta),
            buffers=Weighted(message.buffers),
            weight=Sum(message.weight) if mark is not Rows else Rows(message.weight),
        )
        return Reply(said, new, self._watch(delta, model, kept, closes, last, each), finite(kept, message, new))

    def embed(self, how: Any, shared: Shared, each: Each) -> Reply:
        """The first half of a pipeline on the client: its descriptor."""
        v = self.broadcast.descriptor(shared.model, each)
        return Reply(Rows(v), {}, {}, finite(v))

    def embed_back(self, how: Any, shared: Shared, each: Each) -> Reply:
        """The last half of a pipeline on the client: the transpose of `embed`, same samples, at the d v it was sent."""
        along = lambda phi: ((self.broadcast.descriptor(phi, each) * each.sent).sum(), ())
        d_phi = how.differentiate(along, shared.model)[0]
        return Reply(Sum(d_phi), {}, {}, finite(d_phi))

    # --- what a client predicts with ----------------------------------------------------------------------------------
    def predictor(
        self, how: Any, theta: Tensor, buffers: Tensor, shared: Shared, each: Each
    ) -> Callable[[Any], Tensor]:
        """What a client predicts with, x -> scores, at the global model theta [D]."""
        return self.predictors(how, theta, buffers, shared, each)[""]

    def predictors(
        self, how: Any, theta: Tensor, buffers: Tensor, shared: Shared, each: Each
    ) -> dict[str, Callable[[Any], Tensor]]:
        """The same by `Piece.without`: with every piece (""), and without those that bear a name."""
        at, own_buffers, views = self._predicting(how, theta, buffers, shared, each)
        return {name: self._scores(views, at, own_buffers, name) for name in ["", *{p.without for p in self.pieces}]}

    def predicting(self, how: Any, theta: Tensor, buffers: Tensor, shared: Shared, each: Each) -> tuple[Tensor, Tensor]:
        """The parameters and buffers that a client predicts with, at the global model theta [D]: what pieces make of
        its own.
        """
        if not any(p.fills("personal") for p in self.pieces):
            return self.personal_model(theta, buffers, each)
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
        own, zero = self.own_model(theta, each.row, each.seen), theta.new_zeros(())
        fresh = scalar(each.seen < 0, theta)
        memory = restore(self.templates["memory"], each.row, "memory")
        trained: list[Local] = []
        again = self._descend(how, own_buffers, each, shared.lr, trained)
        late = (TaskView(self.task, own_buffers, how.differentiate), again)
        facts = (self.periods.shared, self._step_size(shared.lr), shared.round, fresh, each.who, each.samples)
        work = (scalar(each.steps, theta, theta.dtype), each.batches)
        views = [
            View(theta, own, mine, mine, zero, None, *facts, *work, draws, told, client, (), (), *late)
            for told, client, draws in zip(shared.told.values(), memory.values(), each.draws, strict=True)
        ]
        at = mine
        for piece, view in zip(self.pieces, views, strict=True):
            at = piece.personal(view._replace(end=at), at)
        moved = _statistics(trained, at, own_buffers)
        if self.periods.personal:  # a synchronised layer's statistics stay with it
            moved = torch.where(self.buffer_periods.never, moved, own_buffers)
        return at, moved, views

    def adapted(self, how: Any, theta: Tensor, buffers: Tensor, shared: Shared, each: Each) -> Callable[[Any], Tensor]:
        """What a client predicts with once it has done a round's local work, on the loss alone, from `predicting`."""
        mine, own_buffers, views = self._predicting(how, theta, buffers, shared, each)
        last = self._again(how, own_buffers, each, self._step_size(shared.lr), mine)
        return self._scores(views, last.theta, last.buffers)

    # --- parts of the above -------------------------------------------------------------------------------------------
    def _scores(self, views: list[View], at: Tensor, buffers: Tensor, without: str = "") -> Callable[[Any], Tensor]:
        predict = lambda x: self.task.space.outputs(at, x, buffers)  # noqa: E731
        for piece, view in zip(self.pieces, views, strict=True):
            if not without or piece.without != without:
                here = view._replace(end=at, task=view.task._replace(buffers=buffers))
                predict = piece.predict(here) or predict
        return predict

    def _step_size(self, lr: Any) -> Any:
        return lr if self.recipe.scale is None else lr * self.recipe.scale

    def _descend(
        self, how: Any, buffers: Tensor, each: Each, lr: Any, trained: list[Local] | None = None
    ) -> Callable[..., Tensor]:
        """`view.descend`: a second training of this client, on the round's batches and with its step size unless
        others are given. What comes of each is put into `trained`, by which a model is known by its statistics.
        """
        usual, made = self._step_size(lr), [] if trained is None else trained

        def again(
            start: Tensor,
            objective: Any = None,
            batches: Any = None,
            optimiser: Any = None,
            lr: Any = None,
            correct: Any = None,
        ) -> Tensor:
            step, at = usual if lr is None else lr, _statistics(made, start, buffers)
            made.append(self._again(how, at, each, step, start, objective, batches, optimiser, correct))
            return made[-1].theta

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
            else (lambda k: each.samples.batch(batches[k]), each.steps if batches is each.batches else len(batches))
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

    def _feed(self, how: Any, each: Each) -> Callable[[int], Any]:
        augment, places = self.task.augment, each.samples.places(each.batches)
        if augment is None:
            return lambda k: how.take(each.samples.pool, places[k])

        drawn = [tree_map(lambda leaf, k=k: leaf[k], each.augment) for k in range(len(places))]

        def batch(k: int) -> Any:
            x, y = how.take(each.samples.pool, places[k])
            return augment(x, tree_map(lambda leaf: leaf[: len(x)], drawn[k])), y

        return batch

    def _watch(
        self, delta: Tensor, model: Tensor, kept: Tensor, closes: Any, last: Local, each: Each
    ) -> dict[str, Any]:
        """What a simulation looks at: sums over clients, never sent."""
        steps = scalar(each.steps, delta, torch.float64)
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
            zero = delta.new_zeros(len(self.task.space.layers))
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


def _statistics(trained: list[Local], theta: Tensor, otherwise: Tensor) -> Tensor:
    """The buffers that were trained with these very parameters."""
    return next((local.buffers for local in reversed(trained) if local.theta is theta), otherwise)
