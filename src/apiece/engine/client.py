"""What a client does in a round, for one client that knows no other: the slots of `piece.py`, in their order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from apiece.algebra.message import Message, PerClient, Sum, Weighted
from apiece.algebra.periods import Mask, select, where
from apiece.algebra.view import Loss, Rule
from apiece.engine import row as rows
from apiece.engine.descend import descend
from apiece.engine.diagnostics import diagnostics
from apiece.engine.reduce import marked
from apiece.engine.setup import Setup
from apiece.engine.state import ClientTask, Reply, Shared, finite
from apiece.engine.stepping import Stepping
from apiece.engine.training import feed
from apiece.engine.views import Views, first_view
from apiece.system.device import scalar
from apiece.system.typed import map_tree
from apiece.vector.task import Passes


def train(setup: Setup, stepping: Stepping, shared: Shared, client: ClientTask) -> Reply:
    """Everything that one client does in one round.

    What is synchronized opens an interval at a client where it was sent anew since its last round, and closes it where
    it is returned: in between, training goes on from where the client's row says that it ended.
    """
    periods, row = setup.periods, client.row
    opens, closes = periods.opens(shared.round, client.last_round), periods.closes(shared.round)
    arrived = shared.model if isinstance(client.sent, tuple) else client.sent
    sent = select(opens, arrived, rows.recall(setup, arrived, row.sent))
    model = rows.own_model(setup, sent, row)
    begin = where(opens if periods.plain else opens & periods.shared, sent, model)
    buffers_sent, buffers = rows.own_buffers(setup, shared.buffers, row, shared.round, client.last_round)
    told, before = rows.from_server(setup, shared.from_server, row, opens), rows.steps_before(setup, row, opens)
    passes = Passes(setup.task, buffers)
    view = first_view(setup, stepping, shared, client, buffers, sent, model, begin)
    view = view._replace(steps=before, step=lambda: passes.step)
    views = Views(setup.pieces, client.draws, told, row.memory, setup.mean_is_uniform)

    end = begin
    for piece, mine in views.of(view):
        end = piece.start(mine, end)
    end, start = select(opens, end, model), select(opens, end, rows.recall(setup, end, row.start, row.sent))

    view = view._replace(start=start, end=end)
    objective: Loss = passes.loss
    rules: list[tuple[int, Rule]] = []
    scratch: list[Any] = []
    for place, (piece, mine) in enumerate(views.of(view)):
        objective = piece.objective(mine, objective)
        correction = piece.correct(mine)
        scratch.append(() if correction is None else correction[0])
        rules += [] if correction is None else [(place, correction[1])]
    first = setup.recipe.begin(end, buffers, tuple(scratch), before, _total(setup, row, opens, end))
    if setup.optimizer_state == "kept":
        first = first._replace(optimizer=row.optimizer)
    batches = feed(setup, stepping, client)
    last = descend(stepping, setup.recipe, passes, objective, rules, first, batches, client.steps, view.lr)

    gradient = last.total / (last.steps + (last.steps == 0)) if setup.recipe.gradient else view.gradient
    task = view.task._replace(buffers=last.buffers)
    view = view._replace(end=last.theta, steps=last.steps, gradient=gradient, task=task)
    kept = last.theta
    for piece, mine in views.of(view, last.scratch):
        kept = piece.keep(mine, kept)
    delta = sent - kept
    moved = buffers_sent - last.buffers
    moved = select(setup.buffer_periods.closes(shared.round), moved, torch.zeros_like(moved))
    reports = tuple(marked(piece.report(mine), piece) for piece, mine in views.of(view, last.scratch))
    reports = select(closes, reports, map_tree(torch.zeros_like, reports))
    message = Message(where(closes, delta, 0.0), moved, reports, scalar(client.weight, delta, torch.float64))
    for piece, mine in views.of(view, last.scratch):
        message = piece.upload(mine, message)
    message = message._replace(delta=where(closes, message.delta, 0.0))  # whatever a piece made of what is not due
    ended = views.of(view._replace(message=message), last.scratch)
    memory = select(closes, setup.by_piece(piece.remember(mine) for piece, mine in ended), row.memory)
    new = rows.after(setup, row, sent, start, kept, last, buffers_sent, memory, told)
    seen = diagnostics(setup, delta, model, kept, closes, last, client)
    return Reply(_marked(message, setup.broadcast.delta), new, seen, finite(kept, message, new))


def _total(setup: Setup, row: rows.Row, opens: Mask, like: Tensor) -> rows.Kept:
    """The sum of task gradients since the interval began [D]; () where nobody reads it."""
    zero = torch.zeros_like(like)
    return select(opens, zero, rows.recall(setup, zero, row.total)) if setup.recipe.gradient else ()


def _marked(message: Message, mark: type) -> Message:
    """The message with the marks of the model's own parts: with which weight a delta counts, and how weights do."""
    weight = PerClient(message.weight) if mark is PerClient else Sum(message.weight)
    return message._replace(delta=mark(message.delta), buffers=Weighted(message.buffers), weight=weight)
