"""The View of each piece: built once a phase, then made each piece's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from apiece.algebra.piece import Piece
from apiece.algebra.place import Shared
from apiece.algebra.view import View, hiding
from apiece.engine.setup import Setup
from apiece.engine.state import ClientTask
from apiece.engine.stepping import Stepping
from apiece.engine.training import Retraining
from apiece.system.device import scalar
from apiece.vector.task import TaskView


def first_view(
    setup: Setup,
    stepping: Stepping,
    shared: Shared,
    client: ClientTask,
    buffers: Tensor,
    sent: Tensor,
    model: Tensor,
    at: Tensor,
) -> View:
    """What every piece may know before training: of a client that was sent `sent`, last kept `model`, and is `at`."""
    own = shared.lr if isinstance(client.lr, tuple) else (shared.lr * client.lr).to(at.dtype)
    lr, stream = setup.step_size(own), setup.task.stream(client.key)
    return View(
        sent=sent,
        model=model,
        start=at,
        end=at,
        steps=at.new_zeros(()),
        gradient=at.new_zeros(0),
        shared=setup.periods.shared,
        lr=lr,
        round=shared.round,
        fresh=scalar(client.last_round < 0, at),
        who=client.who,
        data=client.samples,
        planned=scalar(client.steps, at, at.dtype),
        batches=client.batches,
        task=TaskView(setup.task, buffers, stepping.differentiate, stream),
        descend=Retraining(setup, stepping, client, buffers, stream, lr, []),
        step=lambda: 0,
        repeat=partial(_repeated, stepping),
        since=partial(stepping.since, shared.round),
        equal_steps=setup.equal_steps,
    )


def _repeated(stepping: Stepping, step: Callable[[Any], Any], first: Any, times: int) -> Any:
    return stepping.loop(lambda state, k, taken: step(state), first, times)


def kind_of(piece: Piece) -> type[View]:
    """The view of a piece, which shows what it declares of a client's past. Whether a client is new shows in a memory,
    too.
    """
    read = frozenset(piece.reads)  # a set of any kind
    return hiding(type(piece).__name__, read | {"fresh"} if piece.fills("client_memory") else read)


class Views(NamedTuple):
    """What is each piece's own of a view, in the order of the pieces."""

    pieces: Sequence[Piece]
    kinds: Sequence[type[View]]  # looked up once: `of` is called for every slot of every client
    draws: Sequence[Mapping[str, Tensor]]
    told: Mapping[str, Any]
    memory: Mapping[str, Any]
    mean_is_uniform: Sequence[bool]

    @classmethod
    def begin(
        cls, setup: Setup, draws: Sequence[Mapping[str, Tensor]], told: Mapping[str, Any], memory: Mapping[str, Any]
    ) -> Views:
        """Those of one client in one round."""
        return cls(setup.pieces, [*map(kind_of, setup.pieces)], draws, told, memory, setup.mean_is_uniform)

    def of(self, view: View, scratch: Sequence[Any] | None = None) -> Iterator[tuple[Piece, View]]:
        """(piece, its own view), one after the other, with what it carried through the local steps."""
        carried = scratch or [()] * len(self.pieces)
        each = (self.kinds, self.draws, self.told.values(), self.memory.values(), carried, self.mean_is_uniform)
        for piece, kind, draws, server, client, left, uniform in zip(self.pieces, *each, strict=True):
            seen = kind._make(view)
            mine = seen._replace(draws=draws, server=server, client=client, scratch=left, mean_is_uniform=uniform)
            yield piece, mine
