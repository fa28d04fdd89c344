"""What only a simulation can look at: sums over clients of their drift, never sent."""

from __future__ import annotations

import torch
from torch import Tensor

from apiece.algebra.message import Sum
from apiece.algebra.periods import Mask
from apiece.engine.descend import Local
from apiece.engine.setup import Setup
from apiece.engine.state import ClientTask
from apiece.system.device import scalar


def diagnostics(
    setup: Setup, delta: Tensor, model: Tensor, kept: Tensor, closes: Mask, last: Local, client: ClientTask
) -> dict[str, Sum]:
    """Of one client that went from `model` to `kept`, delta = sent - kept: its loss and steps, and where they are
    watched, squares of what it moved (drift) and of how far it is from the initial model (divergence).
    """
    steps, shared = scalar(client.steps, delta, torch.float64), setup.periods.shared
    reached = steps if closes is True else (last.steps * closes).sum(dtype=torch.float64) / shared.sum().clamp(min=1)
    sums = {"loss": last.loss, "steps": steps, "reached": reached}
    if "drift" in setup.watch:
        common = setup.broadcast.common
        delta = delta if setup.periods.plain else torch.where(shared, delta, 0.0)
        apart = delta if common else setup.initial - kept  # spread the same, if all were sent one model
        squares = delta.new_zeros(len(setup.task.space.layers)).index_add(0, setup.layer_index, apart * apart)
        norm = (squares if common else delta * delta).sum().sqrt()
        sums |= {"squares": squares, "offset": apart, "norm": norm, "norm_squared": norm * norm}
    if "divergence" in setup.watch:
        old, new = ((where - setup.initial) * shared for where in (model, kept))
        grown = new.double().square().sum() - old.double().square().sum()
        sums |= {"moved": new - old, "grown": grown}
    return {name: Sum(x) for name, x in sums.items()}
