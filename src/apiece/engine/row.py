"""A client's row: what it keeps between rounds, and how each part is begun, read, used and written.

Only what is read is kept: a client of FedAvg has an empty row. Of the parameters that are synchronized less often than
every round ("slow": S of them), what the open interval needs is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_structure, tree_unflatten

from apiece.algebra.periods import Mask, select, where
from apiece.engine.descend import Local
from apiece.engine.setup import Setup
from apiece.storage.trees import flatten, flattener, restorer

Kept = Tensor | tuple[()]  # () is kept by nobody


class Row(NamedTuple):
    """What a client keeps between rounds; `()` where nothing reads it. On the disk each leaf has the field's name."""

    model: Kept = ()  # the kept entries of its own model [<= D]
    sent: Kept = ()  # the slow parameters as they were sent when their interval opened [S]
    steps: Kept = ()  # local steps since then, one number a group of slow parameters
    start: Kept = ()  # where the interval's training began [S]
    total: Kept = ()  # the sum of task gradients since then [S]
    from_server: Mapping[str, Tensor] = {}  # what pieces were told when it opened, by name [S]
    buffers: Kept = ()  # the kept entries of its own buffers [<= B]
    buffers_sent: Kept = ()  # the slow buffers as they were sent
    touched: Kept = ()  # nothing at all: a row of any kind says that its client was here
    memory: Mapping[str, Any] = {}  # what each piece remembers of this client
    optimizer: Any = ()  # the state of its optimizer


TOLD = "told"  # what `from_server` is called on the disk
OPTIMIZER = "optimiser"  # codespell:ignore: and `optimizer`
STORED = {"from_server": TOLD, "optimizer": OPTIMIZER}


def fresh(setup: Setup) -> Row:
    """The row of a client that never trained."""
    theta, slow, pieces = setup.initial, setup.periods.slow, setup.pieces
    state = setup.templates.optimizer if setup.keeps_optimizer else ()
    row = Row(memory=setup.templates.memory, optimizer=state)
    if len(setup.kept):
        row = row._replace(model=theta[setup.kept])
    if len(slow):
        heard = flatten(TOLD, setup.templates.from_server).items()
        row = row._replace(
            sent=theta[slow],
            steps=theta.new_zeros(len(setup.step_groups[0])),
            start=theta[slow] if any(p.fills("start") for p in pieces) else (),
            total=torch.zeros_like(theta)[slow] if setup.recipe.gradient else (),
            from_server={_short(name): leaf[slow] for name, leaf in heard if leaf.shape == theta.shape},
        )
    if len(setup.buffer_periods.own):
        buffers = setup.initial_buffers
        row = row._replace(buffers=buffers[setup.buffer_periods.own], buffers_sent=buffers[setup.buffer_periods.slow])
    if any("fresh" in p.reads for p in pieces):
        row = row._replace(touched=theta.new_zeros(0))
    return row


def write(row: Row) -> dict[str, Tensor]:
    """The row's tensors by name, as they are stored: `model`, `memory.Scaffold.variate`, ..."""
    fields = (STORED.get(field, field) for field in Row._fields)
    return {name: leaf for field, part in zip(fields, row) for name, leaf in flatten(field, part).items()}


def writer(first: Row) -> Callable[[Row], dict[str, Tensor]]:
    """`write`, made once for the rows of all clients, which are of one structure."""
    return flattener(first, write(first))


def reader(first: Row) -> Callable[[Mapping[str, Tensor]], Row]:
    """The inverse of `write`, made once for the rows of all clients."""
    return restorer(first, write(first))


def _short(name: str) -> str:
    return name.removeprefix(f"{TOLD}.")


# --- what a round makes of it ----------------------------------------------------------------------------------------
def recall(setup: Setup, base: Tensor, *kept: Kept) -> Tensor:
    """`base` [D] with its slow entries from the first of these that is kept."""
    for part in kept:
        if isinstance(part, Tensor):
            return base.index_copy(0, setup.periods.slow, part)
    return base


def own_model(setup: Setup, sent: Tensor, row: Row) -> Tensor:
    """The client's model as it last kept it, [D]: what is not kept is as it was sent."""
    if not isinstance(row.model, Tensor):
        return sent
    whole = len(setup.kept) == setup.task.space.size
    return row.model if whole else sent.index_copy(0, setup.kept, row.model)


def personal_model(
    setup: Setup, theta: Tensor, buffers: Tensor, row: Row, last_round: int | Tensor
) -> tuple[Tensor, Tensor]:
    """The global model with the client's own personal parameters and buffers; as it is for an unseen client."""
    if last_round < 0:
        return theta, buffers
    own, periods = own_model(setup, theta, row), setup.buffer_periods
    mine = own if setup.keeps_personal else torch.where(setup.periods.never, own, theta)
    if isinstance(row.buffers, Tensor) and periods.personal:
        kept = buffers.index_copy(0, periods.own, row.buffers)
        buffers = torch.where(periods.never, kept, buffers)
    return mine, buffers


def from_server(setup: Setup, arrived: dict[str, Any], row: Row, opens: Mask) -> dict[str, Any]:
    """What pieces are told: of groups that did not open, vectors over parameters as they were when these did."""
    if opens is True:
        return arrived
    leaves = [
        select(opens, leaf, recall(setup, leaf, row.from_server.get(_short(name), ())))
        for name, leaf in flatten(TOLD, arrived).items()
    ]
    return tree_unflatten(leaves, tree_structure(arrived))


def steps_before(setup: Setup, row: Row, opens: Mask) -> Tensor:
    """Local steps since the interval began, before this round: [], or [D] where groups differ."""
    if not isinstance(row.steps, Tensor):
        return setup.initial.new_zeros(())
    spread = row.steps[setup.step_groups[1]]
    before = torch.zeros_like(setup.initial).index_copy(0, setup.periods.slow, spread)
    return where(opens, torch.zeros_like(before), before)


def own_buffers(
    setup: Setup, arrived: Tensor, row: Row, round: int | Tensor, last_round: int | Tensor
) -> tuple[Tensor, Tensor]:
    """(the buffers as sent, the buffers to begin with): the client's own where no synchronization came."""
    periods = setup.buffer_periods
    if not (isinstance(row.buffers, Tensor) and isinstance(row.buffers_sent, Tensor)):
        return arrived, arrived
    opens = periods.opens(round, last_round)
    sent = where(opens, arrived, arrived.index_copy(0, periods.slow, row.buffers_sent))
    own = arrived.index_copy(0, periods.own, row.buffers)
    return sent, where(opens & periods.shared, sent, own)


def after(
    setup: Setup,
    row: Row,
    sent: Tensor,
    start: Tensor,
    kept: Tensor,
    last: Local,
    buffers_sent: Tensor,
    memory: dict[str, Any],
    heard: dict[str, Any],
) -> Row:
    """The row after a round: of each part that was kept, its new value."""
    slow, leaves = setup.periods.slow, flatten(TOLD, heard)

    def part(old: Kept, vector: Any, where: Tensor) -> Kept:
        return vector[where] if isinstance(old, Tensor) else ()

    return Row(
        model=part(row.model, kept, setup.kept),
        sent=part(row.sent, sent, slow),
        steps=last.steps[slow][setup.step_groups[0]] if isinstance(row.steps, Tensor) else (),
        start=part(row.start, start, slow),
        total=part(row.total, last.total, slow),
        from_server={name: leaves[f"{TOLD}.{name}"][slow] for name in row.from_server},
        buffers=part(row.buffers, last.buffers, setup.buffer_periods.own),
        buffers_sent=part(row.buffers_sent, buffers_sent, setup.buffer_periods.slow),
        touched=row.touched,
        memory=memory,
        optimizer=last.optimizer if setup.keeps_optimizer else (),
    )
