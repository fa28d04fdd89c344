"""Batches for local steps, and a second training of the same client: what `view.descend` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from apiece.algebra.optim import Optimizer, Rate
from apiece.algebra.returned import RULE, refuse_other_parameters
from apiece.algebra.view import Batches, Loss, Rule
from apiece.engine.descend import Local, descend
from apiece.engine.setup import Setup
from apiece.engine.state import ClientTask
from apiece.engine.stepping import Stepping
from apiece.errors import UserError
from apiece.system.numbered import by_number
from apiece.system.typed import map_tree
from apiece.vector.drawing import Still, Stream
from apiece.vector.task import Passes


def feed(setup: Setup, stepping: Stepping, client: ClientTask) -> Callable[[Any], Any]:
    """The number of a local step -> its batch, augmented."""
    augment, places = setup.task.augment, client.samples.places(client.batches)
    if augment is None:
        return lambda k: stepping.take(client.samples.pool, places(k))
    drawn = map_tree(by_number, client.augment)

    def batch(k: Any) -> Any:
        x, y = stepping.take(client.samples.pool, places(k))
        return augment(x, map_tree(lambda row: row(k)[: len(x)], drawn)), y

    return batch


class Retraining(NamedTuple):
    """A training of one client beside its round's own, from wherever a piece says.

    What comes of each is put into `made`: a model that is trained on again, or predicted with, is known there by its
    vector, and brings the buffers that were trained with it.
    """

    setup: Setup
    stepping: Stepping
    client: ClientTask
    buffers: Tensor
    stream: Stream | Still
    lr: Rate
    made: list[Local]

    def __call__(
        self,
        start: Tensor,
        objective: Loss | None = None,
        batches: Batches | None = None,
        optimizer: Optimizer | None = None,
        lr: Rate | None = None,
        correct: Rule | None = None,
    ) -> Tensor:
        """Where local training from `start` [D] ends: see `Descend`. Raises UserError for batches that are no rows, and
        for a rule that takes something else.
        """
        _refuse_others(batches, correct)
        setup, client, buffers = self.setup, self.client, self.buffers_of(start)
        recipe = setup.recipe._replace(optimizer=optimizer or setup.optimizer, gradient=False)
        rules: list[tuple[int, Rule]] = [] if correct is None else [(0, correct)]
        first = recipe.begin(start, buffers, ((),) * len(rules))
        chosen = client.batches if batches is None else self._joined(batches, start, buffers)
        passes = Passes(setup.task, buffers, self.stream, len(chosen))

        def others(k: Any) -> Any:
            return client.samples.batch(rows(k))

        rows = by_number(chosen)
        batch = feed(setup, self.stepping, client) if batches is None else others
        steps = client.steps if chosen is client.batches else len(chosen)
        rate = self.lr if lr is None else lr
        last = descend(self.stepping, recipe, passes, objective or passes.loss, rules, first, batch, steps, rate)
        self.made.append(last)
        return last.theta

    def _joined(self, batches: Batches, theta: Tensor, buffers: Tensor) -> Batches:
        """These batches, of which a last one of a single sample joins the one before, if the model (BatchNorm) cannot
        be trained on it: how many samples remain for it is chance.
        """
        if isinstance(batches, Tensor) or len(batches) < 2 or len(batches[-1]) != 1:
            return batches
        x, _ = self.client.samples.batch(batches[-1])
        try:
            self.setup.task.stream().within(self.setup.task.space.training_outputs)(theta, x, buffers)
        except UserError:
            return (*batches[:-2], torch.cat([*batches[-2:]]))
        return batches

    def buffers_of(self, theta: Tensor) -> Tensor:
        """The buffers that were trained with these very parameters; the client's own with any others."""
        return next((local.buffers for local in reversed(self.made) if local.theta is theta), self.buffers)


def _refuse_others(batches: Batches | None, correct: Rule | None) -> None:
    given: Any = () if batches is None else batches
    for rows in given:
        if not isinstance(rows, Tensor) or rows.is_floating_point():
            raise UserError(
                "view.descend takes batches=[rows, ...]: each is a tensor of row numbers of view.data, such as "
                f"torch.arange(view.data.size), and not {type(rows).__name__}."
            )
    if correct is not None:
        refuse_other_parameters(correct, RULE, "what view.descend is given as correct")
