"""What a client begins a round with: what the server sent it, and what its row says of an interval that goes on."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from apiece.algebra.message import Message
from apiece.algebra.periods import Mask, select, where
from apiece.algebra.place import Shared
from apiece.engine import row as rows
from apiece.engine.descend import Local
from apiece.engine.setup import Setup
from apiece.engine.state import ClientTask
from apiece.system.device import scalar
from apiece.system.typed import map_tree


class Interval(NamedTuple):
    """Where one client is in the interval between two synchronizations, as a round begins. Vectors are [D]."""

    opens: Mask  # the parameters whose interval begins in this round
    closes: Mask  # the parameters whose interval ends with this round
    sent: Tensor  # the model as the server sent it when the interval began
    model: Tensor  # the client's own model as it last kept it
    begin: Tensor  # where training goes on, before any piece changes that
    buffers_sent: Tensor  # the buffers as the server sent them when their interval began
    buffers: Tensor  # the client's buffers to begin with
    from_server: dict[str, Any]  # what the pieces' server memories said when the interval began
    steps: Tensor  # local steps since the interval began: [], or [D] where groups differ

    @classmethod
    def of(cls, setup: Setup, shared: Shared, client: ClientTask) -> Interval:
        """A parameter's interval opens where it was sent anew since the client's last round, and closes where it is
        returned; in between, training goes on from where the client's row says that it ended.
        """
        periods, row = setup.periods, client.row
        opens, closes = periods.opens(shared.round, client.last_round), periods.closes(shared.round)
        arrived = shared.vector if isinstance(client.sent, tuple) else client.sent
        sent = select(opens, arrived, rows.recall(setup, arrived, row.sent))
        model = rows.own_model(setup, sent, row)
        begin = where(opens if periods.plain else opens & periods.shared, sent, model)
        buffers = rows.own_buffers(setup, shared.buffers, row, shared.round, client.last_round)
        told, steps = rows.from_server(setup, shared.from_server, row, opens), rows.steps_before(setup, row, opens)
        return cls(opens, closes, sent, model, begin, *buffers, told, steps)

    def started(self, setup: Setup, row: rows.Row, theta: Tensor) -> tuple[Tensor, Tensor, rows.Kept]:
        """(where the interval began, where training goes on, the sum of task gradients since), if the round of a
        parameter that opens begins at `theta`.
        """
        start, total = select(self.opens, theta, rows.recall(setup, theta, row.start, row.sent)), ()
        if setup.recipe.gradient:
            zero = torch.zeros_like(theta)
            total = select(self.opens, zero, rows.recall(setup, zero, row.total))
        return start, select(self.opens, theta, self.model), total

    def due(self, setup: Setup, shared: Shared, client: ClientTask, kept: Tensor, last: Local, reports: Any) -> Message:
        """What leaves the client: of all that it has made, that whose interval ends."""
        moved = _due(setup.buffer_periods.closes(shared.round), self.buffers_sent - last.buffers)
        weight = scalar(client.weight, kept, torch.float64)
        return Message(where(self.closes, self.sent - kept, 0.0), moved, _due(self.closes, reports), weight)


def _due(mask: Mask, tree: Any) -> Any:
    """The tree where it is due; 0 elsewhere, made only if something is not due."""
    return tree if mask is True else select(mask, tree, map_tree(torch.zeros_like, tree))
