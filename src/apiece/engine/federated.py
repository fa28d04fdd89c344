"""One round, whatever the algorithm: what the server does. What a client does is in `client.py`."""

from __future__ import annotations

from dataclasses import dataclass

from apiece.algebra.periods import select
from apiece.algebra.place import Answer, Home, Shared
from apiece.engine.reduce import with_rows
from apiece.engine.setup import Setup
from apiece.engine.state import Plan, Server


@dataclass(frozen=True)
class Federated:
    """An algorithm on a task, round by round: `round` is pure in the server, and clients' rows are staged in their
    place until the caller commits them.

    >>> from apiece import Algorithm, Clients, Federation, Plan, Sequential, Setup, Space, Task, Work
    >>> import torch
    >>> pool = torch.randn(6, 4), torch.tensor([0, 1, 0, 1, 2, 2])
    >>> rows = [torch.tensor([0, 1]), torch.tensor([2, 3, 4, 5])]
    >>> federation, space = Federation(pool, pool, rows, rows, ["ash", "box"]), Space(torch.nn.Linear(4, 3))
    >>> setup = Setup(Algorithm("fedavg"), Task(space), space.ravel(), space.ravel_buffers())
    >>> federated = Federated(setup)
    >>> clients, server = Clients(federated, federation, Work(steps=3), 0, Sequential()), federated.start()
    >>> server, answer = federated.round(server, clients, Plan([0, 1], frozenset(), lr=0.1))
    >>> clients.commit(server.round - 1)
    >>> server.round, answer.answered
    (1, [0, 1])
    """

    setup: Setup

    def start(self) -> Server:
        """The server before the first round."""
        setup, params = self.setup, self.setup.broadcast.initial(self.setup.initial)
        memory = setup.by_piece(piece.server_memory(setup.initial) for piece in setup.pieces)
        optimizer, own = setup.server_optimizer.init(params), setup.broadcast.memory(params)
        return Server(0, params, setup.initial_buffers, optimizer, memory, own)

    def shared(self, server: Server, lr: float) -> Shared:
        """What the server sends to every client in this round."""
        told = self.setup.by_piece(piece.tell(server.memory[piece.stream]) for piece in self.setup.pieces)
        return Shared(server.round, lr, server.params, server.buffers, told)

    def round(self, server: Server, clients: Home, plan: Plan) -> tuple[Server, Answer]:
        """One round: (the server after it, what clients answered and pieces log)."""
        setup, shared = self.setup, self.shared(server, plan.lr)
        cohort = clients.at(plan.cohort, plan.absent, server.round)
        sent = setup.broadcast.send(server.params, server.broadcast, cohort, shared)
        model = () if sent.model is None else sent.model
        answer = cohort.map("train", shared._replace(model=model), sent.each)
        answer = answer._replace(traffic=sent.traffic.plus(answer.traffic))
        if not answer.answered:
            return server._replace(round=server.round + 1), answer
        (g, answer), memory = sent.back(answer), dict(server.memory)
        rows = [answer.rows[c].reports for c in answer.answered if c in answer.rows]
        reports = setup.by_piece(with_rows(answer.mean.reports, rows))
        share = len(answer.answered) / clients.registered
        logged: dict[str, float] = {}
        for piece in sorted(setup.pieces, key=lambda piece: not piece.runs_last):
            name = piece.stream
            said = piece.log(memory[name], g, reports[name], share)
            logged |= {f"{name}.{key}": float(number) for key, number in said.items()}
            g, memory[name] = piece.learn(memory[name], g, reports[name], share)
        params, optimizer = setup.server_optimizer.step(g, server.params, server.optimizer, 1.0)
        memory = setup.by_piece(p.settle(memory[p.stream], server.params, params) for p in setup.pieces)
        due, buffers_due = setup.periods.closes(server.round), setup.buffer_periods.closes(server.round)
        old = server.params, server.optimizer, server.memory
        params, optimizer, memory = select(due, (params, optimizer, memory), old)
        buffers = select(buffers_due, server.buffers - answer.mean.buffers, server.buffers)
        after = Server(server.round + 1, params, buffers, optimizer, memory, sent.memory)
        return after, answer._replace(logged=logged)
