"""What a client predicts with: the global model, what is personal, and what pieces make of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from apiece.algebra.piece import Piece
from apiece.algebra.place import Shared
from apiece.algebra.view import Predict, View
from apiece.engine import row as rows
from apiece.engine.setup import Setup
from apiece.engine.state import ClientTask
from apiece.engine.stepping import Stepping
from apiece.engine.training import Retraining
from apiece.engine.views import Views, first_view


class Predicting(NamedTuple):
    """What one client predicts with: parameters [D], buffers [B], and each piece's view."""

    theta: Tensor
    buffers: Tensor
    views: list[tuple[Piece, View]]
    retrain: Retraining


def remakes(piece: Piece, newcomer: bool) -> bool:
    """Whether a piece may make another model of a client's, of a newcomer or of a member of the training."""
    return piece.fills("personal") and piece.serves != ("members" if newcomer else "newcomers")


def beside(setup: Setup) -> str:
    """What clients' models need at prediction beside the file, in a clause; "" where a model predicts alone."""
    pieces = [type(piece).__name__ for piece in setup.pieces if piece.fills("predict")]
    return f"{', '.join(pieces)}, at prediction, needs the client's samples beside the file" if pieces else ""


def predicting(
    setup: Setup, stepping: Stepping, theta: Tensor, buffers: Tensor, shared: Shared, client: ClientTask
) -> tuple[Tensor, Tensor]:
    """The parameters and buffers that a client predicts with, at the global model theta [D]: what pieces make of its
    own.
    """
    if not any(p.fills("personal") for p in setup.pieces):
        return rows.personal_model(setup, theta, buffers, client.row, client.last_round)
    return _predicting(setup, stepping, theta, buffers, shared, client)[:2]


def predictor(
    setup: Setup, stepping: Stepping, theta: Tensor, buffers: Tensor, shared: Shared, client: ClientTask
) -> Predict:
    """What a client predicts with, x -> scores, at the global model theta [D]."""
    return predictors(setup, stepping, theta, buffers, shared, client)[""]


def predictors(
    setup: Setup, stepping: Stepping, theta: Tensor, buffers: Tensor, shared: Shared, client: ClientTask
) -> dict[str, Predict]:
    """The same by name, for all `Setup.ways`."""
    at, own, views, _ = _predicting(setup, stepping, theta, buffers, shared, client)
    return {name: _scores(setup, views, at, own, name) for name in setup.ways}


def adapted(
    setup: Setup, stepping: Stepping, theta: Tensor, buffers: Tensor, shared: Shared, client: ClientTask
) -> Predict:
    """What a client predicts with once it has done a round's local work, on the loss alone, from `predicting`."""
    mine, own, views, retrain = _predicting(setup, stepping, theta, buffers, shared, client)
    again = retrain._replace(buffers=own, made=[])
    last = again(mine)
    return _scores(setup, views, last, again.buffers_of(last))


def observed(
    setup: Setup, stepping: Stepping, theta: Tensor, buffers: Tensor, shared: Shared, client: ClientTask
) -> dict[str, Any]:
    """The pictures and figures that pieces make of a client, by name, at the global model theta [D]."""
    at, _, views, _ = _predicting(setup, stepping, theta, buffers, shared, client)
    return {name: what for piece, view in views for name, what in piece.observe(view._replace(end=at)).items()}


def _predicting(
    setup: Setup, stepping: Stepping, theta: Tensor, buffers: Tensor, shared: Shared, client: ClientTask
) -> Predicting:
    mine, own = rows.personal_model(setup, theta, buffers, client.row, client.last_round)
    model = rows.own_model(setup, theta, client.row)
    view = first_view(setup, stepping, shared, client, own, theta, model, mine)
    each = Views.begin(setup, client.draws, shared.from_server, client.row.memory)
    views, at, retrain = list(each.of(view)), mine, cast(Retraining, view.descend)
    for piece, own_view in views:
        at = piece.personal(own_view._replace(end=at), at)
    moved = retrain.buffers_of(at)
    if setup.periods.personal:  # a synchronized layer's statistics stay with it
        moved = torch.where(setup.buffer_periods.never, moved, own)
    return Predicting(at, moved, views, retrain)


def _scores(
    setup: Setup, views: Sequence[tuple[Piece, View]], at: Tensor, buffers: Tensor, without: str = ""
) -> Predict:
    predict: Predict = lambda x: setup.task.space.outputs(at, x, buffers)  # noqa: E731
    for piece, view in views:
        if not without or piece.without != without:
            predict = piece.predict(view._replace(end=at, task=view.task._replace(buffers=buffers))) or predict
    return predict
