"""Fine-tuning: every client trains its model further before it predicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor

from apiece.algebra.composition import Algorithm, algorithm
from apiece.algebra.draws import Draw
from apiece.algebra.piece import Piece
from apiece.algebra.view import View
from apiece.errors import UserError
from apiece.vector.space import Space

ORDER = Draw("order", (), "uniform", "sample")  # its argsort is the order of a client's samples


def smallest_batch(batch: int, work: int) -> float:
    """`Piece.smallest_batch` of a piece that trains on such batches of its own, if it trains at all."""
    return inf if batch == 1 and work else 2


def passes(view: View, epochs: int, batch: int, steps: int = 0) -> list[Tensor]:
    """The rows [B] of each batch: `epochs` passes, then `steps` batches, in one random order; the last may be shorter.

    Predictions are made for one client at a time, so its number of samples is a plain number.
    """
    order = torch.argsort(view.draws[ORDER.name])
    size = min(batch, len(order))
    count = epochs * len(order) + steps * size
    return list(order[torch.arange(count, device=order.device) % len(order)].split(size)) if count else []


def drawn_batches(view: View) -> Callable[[int | Tensor, int], Tensor]:
    """(number of a batch 0, 1, ..., its size B) -> its rows [B], in passes over the samples in one random order.

    All batches are full. Where clients are stacked, no batch contains their padding.
    """
    drawn, samples = view.draws[ORDER.name], view.data.size
    places = torch.arange(len(drawn), device=drawn.device)
    order = torch.argsort(torch.where(places < samples, drawn, 2.0))

    def rows(number: int | Tensor, size: int) -> Tensor:
        return order[(number * size + torch.arange(size, device=drawn.device)) % samples]

    return rows


@dataclass(frozen=True)
class FineTune(Piece):
    """theta_i <- theta_i - lr g_i(theta_i) for `epochs` passes over the client's training samples, or `steps` batches.

    The +FT rows of Wang et al., "Federated Evaluation of On-device Personalization", 2019, section 3; test data are
    never used. None for `lr` is the round's step size, and for `optimizer` the clients'. Stored and sent: nothing. An
    unseen client does the same, from the model that the other pieces give it.
    """

    runs_last = True

    epochs: int = 1
    steps: int = 0
    batch: int = 32
    lr: float | None = None
    optimizer: Any = None

    def __post_init__(self) -> None:
        if min(self.epochs, self.steps, self.lr or 0) < 0 or self.batch < 1:
            raise UserError(
                f"{self!r} is impossible: give 0 or more epochs or steps, batches of 1 or more, and lr of 0 or more."
            )

    @classmethod
    def neutral(cls):
        return cls(epochs=0), "fedavg"

    @property
    def smallest_batch(self):
        return smallest_batch(self.batch, self.epochs + self.steps)

    def draws(self, space: Space):
        return (ORDER,)

    def personal(self, view: View, theta: Tensor):
        batches = passes(view, self.epochs, self.batch, self.steps)
        return view.descend(theta, batches=batches, optimizer=self.optimizer, lr=self.lr)


def fine_tune(
    epochs: int | None = None, steps: int | None = None, batch: int = FineTune.batch, lr: float | None = FineTune.lr
) -> Algorithm:
    """Clients train further before they predict, under any algorithm: epochs (1) or steps (Wang et al. 2019).

    Use it as the baseline of personalization: compare other personal algorithms with `fedavg + fine_tune`.
    """
    if epochs is not None and steps is not None:
        raise UserError("fine_tune takes epochs or steps, not both.")
    piece = FineTune(epochs if epochs is not None else int(steps is None), steps or 0, batch, lr)
    return algorithm(piece, name=f"fine_tune(epochs={piece.epochs})" if steps is None else f"fine_tune(steps={steps})")
