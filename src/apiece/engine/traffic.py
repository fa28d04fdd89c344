"""What crosses the boundary, as named tensors: only the groups that are due, and what the pieces declared.

`down` and `up` say what is in a message; `arrived` and `received` are their inverses. The ledger counts them and the
wire sends them, so that both speak of the same thing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from apiece.algebra.message import Message
from apiece.algebra.place import Shared, Traffic
from apiece.engine import messages
from apiece.engine.setup import Setup
from apiece.engine.state import Reply


def measure(message: dict[str, Tensor], length: int | None = None) -> tuple[int, int, int, int]:
    """(parameters, buffers, control, bytes) of one message, of that length where it was really made."""
    kinds = {"model": 0, "delta": 0, "buffers": 1}
    numbers = [0, 0, 0]
    for name, leaf in message.items():
        numbers[kinds.get(name, 2)] += leaf.numel()
    return numbers[0], numbers[1], numbers[2], messages.length(message) if length is None else length


def down(setup: Setup, shared: Shared, own: Tensor | tuple[()], last_round: int) -> dict[str, Tensor]:
    """What a client that last took part in round `last_round` is sent: the due groups of its model, its buffers, and
    what it is told.
    """
    model = shared.vector if isinstance(own, tuple) else own
    sent = setup.periods.sent(shared.round, last_round)
    told = {f"told.{i}": sent.of(leaf) for i, leaf in enumerate(tree_flatten(shared.from_server)[0])}
    buffers = setup.buffer_periods.sent(shared.round, last_round)
    return {"model": sent.of(model), "buffers": buffers.of(shared.buffers)} | told


def arrived(setup: Setup, tensors: dict[str, Tensor], round: int, lr: float, last_round: int) -> Shared:
    """The inverse of `down`: what was not sent stands as it was at the start, and is not read."""
    sent = setup.periods.sent(round, last_round)
    leaves, spec = tree_flatten(setup.templates.from_server)
    told = [sent.into(old, tensors[f"told.{i}"]) for i, old in enumerate(leaves)]
    model = sent.into(setup.initial, tensors["model"])
    buffers = setup.buffer_periods.sent(round, last_round).into(setup.initial_buffers, tensors["buffers"])
    return Shared(round, lr, model, buffers, tree_unflatten(told, spec))


def up(setup: Setup, message: Any, round: int) -> dict[str, Tensor]:
    """What a client says: its delta and reports cut to the groups that close in this round; its weight goes in the
    header.
    """
    if not isinstance(message, Message):
        return {f"report.{i}": leaf for i, leaf in enumerate(tree_flatten(message)[0])}
    due = setup.periods.returned(round)
    reports = {f"report.{i}": due.of(leaf) for i, leaf in enumerate(tree_flatten(message.reports)[0])}
    buffers = setup.buffer_periods.returned(round).of(message.buffers.x)
    return {"delta": due.of(message.delta.x), "buffers": buffers} | reports


def received(setup: Setup, tensors: dict[str, Tensor], like: Any, round: int, weight: float) -> Any:
    """The inverse of `up` for an answer of the form `like`: what was withheld is zero."""
    if not isinstance(like, Message):
        return tree_unflatten([tensors[f"report.{i}"] for i in range(len(tensors))], tree_flatten(like)[1])
    due = setup.periods.returned(round)
    leaves, spec = tree_flatten(like.reports)
    reports = [due.into(torch.zeros_like(leaf), tensors[f"report.{i}"]) for i, leaf in enumerate(leaves)]
    delta = due.into(torch.zeros_like(like.delta.x), tensors["delta"])
    buffers = setup.buffer_periods.returned(round).into(torch.zeros_like(like.buffers.x), tensors["buffers"])
    marked = type(like.weight)(torch.tensor(weight, dtype=torch.float64))
    return Message(type(like.delta)(delta), type(like.buffers)(buffers), tree_unflatten(reports, spec), marked)


class Count:
    """What crosses in one phase; messages of equal form are measured once."""

    def __init__(self, setup: Setup, shared: Shared) -> None:
        self.setup, self.shared = setup, shared
        self._down: dict[Any, tuple[int, int, int, int]] = {}
        self._up: tuple[int, int, int, int] | None = None

    def down(self, own: Tensor | tuple[()], last_round: int) -> Traffic:
        """What a client is sent that last took part in round `last_round`."""
        form = self.setup.periods.pattern(self.shared.round, last_round)
        if form not in self._down:
            self._down[form] = measure(down(self.setup, self.shared, own, last_round))
        return Traffic(0, 0, 0, 0, *self._down[form])

    def up(self, reply: Reply) -> Traffic:
        """What a client sends back; an answer that is not finite is told of by a message without tensors."""
        if not bool(reply.finite):
            return Traffic(*measure({}))
        self._up = self._up or measure(up(self.setup, reply.message, self.shared.round))
        return Traffic(*self._up)
