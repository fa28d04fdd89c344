"""One round, whatever the algorithm: what the server does. What a client does is in `client.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial, update_wrapper
from typing import Any

from torch import Tensor

from apiece.algebra.periods import select
from apiece.algebra.piece import Piece
from apiece.engine.client import train
from apiece.engine.pipeline import embed, embed_back
from apiece.engine.reduce import with_rows
from apiece.engine.setup import Setup
from apiece.engine.state import Plan, Server, Shared
from apiece.errors import UserError


@dataclass(frozen=True)
class Federated:
    """An algorithm on a task, round by round: `round` is pure in the server, and clients' rows are staged in their
    place until the caller commits them.
    """

    setup: Setup

    def __repr__(self) -> str:
        s = self.setup
        return f"Federated({s.algorithm.name!r}, parameters={s.task.space.size}, weighting={s.weighting!r})"

    @cached_property
    def operations(self) -> dict[str, Callable[..., Any]]:
        """What a cohort is asked for, by name: (stepping, shared, client) -> Reply."""
        return {name: update_wrapper(partial(what, self.setup), what) for name, what in OPERATIONS.items()}

    def start(self) -> Server:
        """The server before the first round."""
        setup = self.setup
        params = setup.broadcast.initial(setup.initial)
        memory = setup.by_piece(piece.server_memory(setup.initial) for piece in setup.pieces)
        optimizer, own = setup.server_optimizer.init(params), setup.broadcast.memory(params)
        return Server(0, params, setup.initial_buffers, optimizer, memory, own)

    def shared(self, server: Server, lr: float) -> Shared:
        """What every client is told in this round."""
        told = self.setup.by_piece(piece.tell(server.memory[piece.stream]) for piece in self.setup.pieces)
        return Shared(server.round, lr, server.params, server.buffers, told)

    def round(self, server: Server, clients: Any, plan: Plan) -> tuple[Server, Any]:
        """One round: (the server after it, what clients answered and pieces log)."""
        setup, shared = self.setup, self.shared(server, plan.lr)
        cohort = clients.at(plan.cohort, plan.absent, server.round)
        sent = setup.broadcast.send(server.params, server.broadcast, cohort, shared)
        model = () if sent.model is None else sent.model
        answer = cohort.map("train", shared._replace(model=model), sent.each)
        if not answer.answered:
            return server._replace(round=server.round + 1), answer
        (g, answer), memory = sent.back(answer), dict(server.memory)
        rows = [answer.rows[c].reports for c in answer.answered if c in answer.rows]
        reports = setup.by_piece(with_rows(answer.mean.reports, rows))
        share = len(answer.answered) / clients.registered
        logged: dict[str, Any] = {}
        for piece in sorted(setup.pieces, key=lambda piece: not piece.runs_last):
            name = piece.stream
            logged |= _numbers(piece, piece.log(memory[name], g, reports[name], share))
            g, memory[name] = piece.learn(memory[name], g, reports[name], share)
        params, optimizer = setup.server_optimizer.step(g, server.params, server.optimizer, 1.0)
        memory = setup.by_piece(p.settle(memory[p.stream], server.params, params) for p in setup.pieces)
        due, buffers_due = setup.periods.closes(server.round), setup.buffer_periods.closes(server.round)
        old = server.params, server.optimizer, server.memory
        params, optimizer, memory = select(due, (params, optimizer, memory), old)
        buffers = select(buffers_due, server.buffers - answer.mean.buffers, server.buffers)
        after = Server(server.round + 1, params, buffers, optimizer, memory, sent.memory)
        return after, answer._replace(logged=logged)

    def evaluated(self, server: Server) -> Tensor:
        """The global model that is measured and saved, but for groups that are open: what pieces make of the server's
        vector.
        """
        theta = server.params
        for piece in self.setup.pieces:
            theta = piece.evaluate(server.memory[piece.stream], theta)
        return theta


def _numbers(piece: Piece, logged: dict[str, Any]) -> dict[str, Any]:
    """What a piece logs of a round, under its own name; UserError for what is no single number."""
    for name, value in logged.items():
        if not (value.dim() == 0 if isinstance(value, Tensor) else isinstance(value, int | float)):
            raise UserError(
                f"{piece.stream}.log gives {name!r} as a {type(value).__name__}, which is no single number: give a "
                "number, or a tensor of shape []."
            )
    return {f"{piece.stream}.{name}": value for name, value in logged.items()}


OPERATIONS = {operation.__name__: operation for operation in (train, embed, embed_back)}
