"""What a client does in a round, for one client that knows no other: the slots of `piece.py`, in their order."""

from __future__ import annotations

from typing import Any

from apiece.algebra.periods import select, where
from apiece.algebra.place import Shared
from apiece.algebra.view import Loss, Rule
from apiece.engine import row as rows
from apiece.engine.descend import descend
from apiece.engine.diagnostics import diagnostics
from apiece.engine.interval import Interval
from apiece.engine.reduce import with_marks
from apiece.engine.setup import Setup
from apiece.engine.state import ClientTask, Reply, finite
from apiece.engine.stepping import Stepping
from apiece.engine.training import feed
from apiece.engine.views import Views, first_view
from apiece.vector.task import Passes


def train(setup: Setup, stepping: Stepping, shared: Shared, client: ClientTask) -> Reply:
    """Everything that one client does in one round."""
    row, at = client.row, Interval.of(setup, shared, client)
    view = first_view(setup, stepping, shared, client, at.buffers, at.sent, at.model, at.begin)
    passes = Passes(setup.task, at.buffers, view.task.stream, len(client.batches))
    view = view._replace(steps=at.steps, step=lambda: passes.step)
    views = Views.begin(setup, client.draws, at.from_server, row.memory)

    theta = at.begin
    for piece, mine in views.of(view):
        theta = piece.start(mine, theta)
    start, theta, total = at.started(setup, row, theta)

    view = view._replace(start=start, end=theta)
    objective: Loss = passes.loss
    rules: list[tuple[int, Rule]] = []
    scratch: list[Any] = []
    for place, (piece, mine) in enumerate(views.of(view)):
        objective = piece.objective(mine, objective)
        correction = piece.correct(mine)
        scratch.append(() if correction is None else correction[0])
        rules += [] if correction is None else [(place, correction[1])]
    recipe, state = setup.recipe_of(at.closes), {"optimizer": row.optimizer} if setup.keeps_optimizer else {}
    first = recipe.begin(theta, at.buffers, tuple(scratch), at.steps, total)._replace(**state)
    fed = feed(setup, stepping, client)
    last = descend(stepping, recipe, passes, objective, rules, first, fed, client.steps, view.lr)

    gradient = last.total / (last.steps + (last.steps == 0)) if setup.recipe.gradient else view.gradient
    task = view.task._replace(buffers=last.buffers)
    view = view._replace(end=last.theta, steps=last.steps, gradient=gradient, task=task)
    kept = last.theta
    for piece, mine in views.of(view, last.scratch):
        kept = piece.keep(mine, kept)
    reports = tuple(piece.report(mine) for piece, mine in views.of(view, last.scratch))
    message = at.due(setup, shared, client, kept, last, reports)
    for piece, mine in views.of(view, last.scratch):
        message = piece.upload(mine, message)
    message = message._replace(delta=where(at.closes, message.delta, 0.0))  # no piece sends what is not due
    ended = views.of(view._replace(message=message), last.scratch)
    memory = select(at.closes, setup.by_piece(piece.remember(mine) for piece, mine in ended), row.memory)
    new = rows.after(setup, row, at.sent, start, kept, last, at.buffers_sent, memory, at.from_server)
    seen = diagnostics(setup, at.sent - kept, at.model, kept, at.closes, last, client)
    return Reply(with_marks(message, setup.broadcast.delta), new, seen, finite(kept, message, new))
