"""One round, whatever the algorithm: what the server does.

`Federated` binds an algorithm to a task. `round(server, clients, plan)` is pure in the server; rows of clients are
staged in their place and count once the caller commits them. What clients do is in `client.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from apiece.algebra.periods import select
from apiece.algebra.piece import Piece
from apiece.engine.client import OnClient
from apiece.engine.reduce import with_rows
from apiece.engine.state import Plan, Server, Shared
from apiece.errors import UserError


@dataclass(frozen=True)
class Federated(OnClient):
    """An algorithm on a task: its server's side, and through its bases what clients do and keep."""

    def __repr__(self) -> str:
        return f"Federated({self.algorithm.name!r}, parameters={self.task.space.size}, weighting={self.weighting!r})"

    def start(self) -> Server:
        """The server before the first round."""
        params = self.broadcast.initial(self.initial)
        memory = self.by_piece(p.server_memory(self.initial) for p in self.pieces)
        optimiser, own = self.server_optimiser.init(params), self.broadcast.memory(params)
        return Server(0, params, self.initial_buffers, optimiser, memory, own)

    def shared(self, server: Server, lr: float) -> Shared:
        """What every client is told in this round."""
        told = self.by_piece(p.tell(server.memory[type(p).__name__]) for p in self.pieces)
        return Shared(server.round, lr, server.params, server.buffers, told)

    def round(self, server: Server, clients: Any, plan: Plan) -> tuple[Server, Any]:
        """One round: (the server after it, what clients answered and pieces log). Rows are staged in `clients`, not yet
        counted.
        """
        shared = self.shared(server, plan.lr)
        cohort = clients.at(plan.cohort, plan.silent, server.round)
        sent = self.broadcast.send(server.params, server.broadcast, cohort, shared)
        model = () if sent.model is None else sent.model
        answer = cohort.map("train", shared._replace(model=model), sent.each)
        if not answer.answered:
            return server._replace(round=server.round + 1), answer
        (g, answer), memory = sent.back(answer), dict(server.memory)
        rows = [answer.rows[c].reports for c in answer.answered if c in answer.rows]
        reports = self.by_piece(with_rows(answer.mean.reports, rows))
        share = len(answer.answered) / clients.registered
        logged: dict[str, Any] = {}
        for piece in sorted(self.pieces, key=lambda piece: not piece.late):
            name = type(piece).__name__
            logged |= _numbers(piece, piece.log(memory[name], g, reports[name], share))
            g, memory[name] = piece.learn(memory[name], g, reports[name], share)
        params, optimiser = self.server_optimiser.step(g, server.params, server.optimiser)
        memory = self.by_piece(p.settle(memory[type(p).__name__], server.params, params) for p in self.pieces)
        due, buffers_due = self.periods.closes(server.round), self.buffer_periods.closes(server.round)
        params, optimiser, memory = select(
            due, (params, optimiser, memory), (server.params, server.optimiser, server.memory)
        )
        buffers = select(buffers_due, server.buffers - answer.mean.buffers, server.buffers)
        after = Server(server.round + 1, params, buffers, optimiser, memory, sent.memory)
        return after, answer._replace(logged=logged)

    def evaluated(self, server: Server) -> Tensor:
        """The global model that is measured and saved, but for groups that are open: what pieces make of the server's
        vector.
        """
        theta = server.params
        for piece in self.pieces:
            theta = piece.evaluate(server.memory[type(piece).__name__], theta)
        return theta


def _numbers(piece: Piece, said: dict[str, Any]) -> dict[str, Any]:
    """What a piece says of a round, under its own name; UserError for what is no single number."""
    for name, value in said.items():
        if not (value.dim() == 0 if isinstance(value, Tensor) else isinstance(value, int | float)):
            raise UserError(
                f"{type(piece).__name__}.log gives {name!r} as a {type(value).__name__}, which is no single number: "
                "give a number, or a tensor of shape []."
            )
    return {f"{type(piece).__name__}.{name}": value for name, value in said.items()}
