"""What a client measures on its own test samples, and how the server adds it up.

    evaluate     the model that was sent: sums over the client's test samples; what the client itself predicts with: its
                 value of each metric
    adapt        its value of each metric after one round's local work, from the model that was sent
    describe     the descriptor of the client's whole training data, of which a pipeline makes its model
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from apiece.algebra.generators import Pipeline
from apiece.algebra.place import Shared
from apiece.algebra.view import Predict
from apiece.engine.predicting import adapted, predicting, predictors
from apiece.engine.setup import Setup
from apiece.engine.state import ClientTask
from apiece.engine.stepping import Loop
from apiece.measure.scoring import Scores, score
from apiece.system.device import to_device

Said = dict[str, Tensor]


def evaluate(setup: Setup, shared: Shared, each: ClientTask, tests: Any) -> Said:
    """Of n test samples: `count` of their targets, the sum of each metric over samples and of the loss for the model
    that was sent, and for each way to predict (`Setup.ways`) the value of each metric, with a mask of those that are
    defined.
    """
    task, metrics, rows = setup.task, setup.task.metrics, _rows(tests)
    found = predictors(setup, Loop(), shared.vector, shared.buffers, shared, each)
    own = _valued(setup, [found[way] for way in setup.ways], tests)
    if not len(rows):
        return {"count": torch.tensor(0)} | own
    sent = score(task, lambda x: task.space.outputs(shared.vector, x, shared.buffers), tests, rows)
    return {"count": sent.targets.sum()} | own | _sums(sent, metrics)


def adapt(setup: Setup, shared: Shared, each: ClientTask, tests: Any) -> Said:
    """The value of each metric once the client has done a round's local work, with a mask of those that are defined."""
    return _valued(setup, [adapted(setup, Loop(), shared.vector, shared.buffers, shared, each)], tests)


def own_model(setup: Setup, shared: Shared, each: ClientTask) -> Said:
    """The model that the client itself predicts with, by the names of its module's state."""
    theta, buffers = predicting(setup, Loop(), shared.vector, shared.buffers, shared, each)
    return setup.task.space.state_dict(theta, buffers)


def describe(setup: Setup, shared: Shared, each: ClientTask, tests: Any) -> Said:
    """`v`, the mean embedding of all of the client's training samples, [E]."""
    assert isinstance(setup.broadcast, Pipeline), "a descriptor is asked for by a pipeline alone"
    with torch.no_grad():
        return {"v": setup.broadcast.describe(shared.vector, each)}


def form(setup: Setup, operation: str, like: Any, tests: int) -> Said:
    """The names, shapes and types of what a client with so many test samples tells, from samples `like` its own."""
    if operation == "adapt":
        return _blank(setup, 1)
    found = {"count": torch.tensor(0)} | _blank(setup, len(setup.ways))
    if not tests:
        return found
    task, pool = setup.task, to_device(like, setup.initial.device)
    outputs = lambda x: task.space.outputs(setup.initial, x, setup.initial_buffers)
    return found | _sums(score(task, outputs, pool, _rows(pool)), task.metrics)


def impossible(said: Said, tests: int, targets: int) -> str:
    """Why a client with so many test samples, of at most so many targets each, cannot have told this of the right form,
    in a clause; nothing where it can.
    """
    count, least = int(said["count"]) if "count" in said else tests, 0 if targets > 1 else tests
    if least <= count <= tests * targets:
        return ""
    due = least if least == tests * targets else f"{least} to {tests * targets}"
    return f"its count is {count} where {due} is expected"


MEASURING = {"evaluate": evaluate, "adapt": adapt, "describe": describe}
SENT_WHOLE = ("evaluate", "adapt")  # the model that these measure crosses whole, whatever the client has of it


def _rows(tests: Any) -> Tensor:
    """The rows of a client's test samples."""
    return torch.arange(0 if tests is None else len(tree_leaves(tests[1])[0]))


def _valued(setup: Setup, predictors: list[Predict], tests: Any) -> Said:
    """For each predictor the value of each metric, float64 [predictors, metrics], and which of them are defined."""
    task, rows = setup.task, _rows(tests)
    values, defined = (blank := _blank(setup, len(predictors)))["values"], blank["defined"]
    for place, predict in enumerate(predictors if len(rows) else ()):
        own = score(task, predict, tests, rows).of(task.metrics)
        for column, metric in enumerate(task.metrics):
            if metric.name in own:
                values[place, column], defined[place, column] = own[metric.name], True
    return blank


def _blank(setup: Setup, predictors: int) -> Said:
    """No value of any metric, for so many predictors."""
    shape = predictors, len(setup.task.metrics)
    return {"values": torch.zeros(shape, dtype=torch.float64), "defined": torch.zeros(shape, dtype=torch.bool)}


def _sums(scores: Scores, metrics: Any) -> Said:
    """The sums over samples, weighted by targets, of the loss and of each metric that is a mean over samples."""
    weights, values = scores.targets.double(), iter(scores.values)
    sums = {"loss": torch.tensor(scores.loss if weights.any() else 0.0, dtype=torch.float64) * weights.sum()}
    for metric in metrics:
        if metric.over == "samples":
            of = next(values)
            sums[f"sum.{metric.name}"] = (of * weights.view(-1, *[1] * (of.dim() - 1))).sum(0)
    return sums
