"""Whether a model, a loss and a metric fit the data, checked before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch import nn

from apiece.algebra.composition import Algorithm
from apiece.algebra.piece import Piece
from apiece.config.fitting import fitting_metric, fitting_shape, refuse_outputs, refuse_wider, unchanged
from apiece.config.settings import shown
from apiece.engine.setup import Setup
from apiece.engine.stepping import Loop
from apiece.engine.work import Between, Work
from apiece.errors import UserError, tried
from apiece.system.allocator import memory
from apiece.vector.drawing import Drawing
from apiece.vector.task import Passes, Task, scores
from apiece.vector.watched import ChangesInputs

MEASURED = 3  # samples on which metrics are tried

CLIENTS = ("names", "participants", "size", "samples", "test_pool", "test_rows")  # what a run needs of ready clients


def refuse_others(
    model: Any,
    data: Any,
    algorithm: Any,
    loss: Any,
    on_round: Any,
    clients: Any,
    watchers: Any = (),
    collate: Any = None,
) -> None:
    """Raise UserError if an object that a program gave is of the wrong kind."""
    given = {"model": model, "data": data, "algorithm": algorithm, "loss": loss, "clients": clients}
    for name, thing in given.items():
        refuse_class(name, thing)
    if not isinstance(model, str | nn.Module):
        raise UserError(f"model is a {type(model).__name__}: give a torch.nn.Module, or the name of a model.")
    if isinstance(algorithm, Piece):
        raise UserError(f"algorithm is a piece: give apiece.algorithm({algorithm!r}, name=...).")
    if not isinstance(algorithm, str | Algorithm):
        raise UserError(f"algorithm is a {type(algorithm).__name__}: give an Algorithm, or the name of one.")
    if not isinstance(watchers, Sequence):
        raise UserError(f"watchers is {shown(watchers)}: give a list of functions.")
    several = (("a watcher", watcher) for watcher in watchers)
    for name, thing in (("loss", loss), ("on_round", on_round), ("collate", collate), *several):
        if thing is not None and not callable(thing):
            raise UserError(f"{name} is {shown(thing)}, which cannot be called: give a function, or leave it out.")
    if clients is not None and not all(hasattr(clients, name) for name in CLIENTS):
        raise UserError(
            f"clients is a {type(clients).__name__}: give a number of clients, or ready ones as a Federation "
            "(apiece.Federation)."
        )
    if collate is not None and (clients is not None or isinstance(data, str | Path)):
        given_as = "clients= are ready" if clients is not None else f"data={str(data)!r} are read from files"
        raise UserError(f"collate is for samples that a program gives, and {given_as}: leave collate out.")


def refuse_class(name: str, thing: Any) -> None:
    """Raise UserError for a class where an instance of it is wanted."""
    if isinstance(thing, type):
        raise UserError(f"{name} is the class {thing.__name__}: give an instance of it, {thing.__name__}(...).")


def refuse_seeds(settings: Mapping[str, Any]) -> None:
    """Raise UserError for several seeds of one run."""
    if seeds := settings.get("seeds"):
        given = list(seeds) if isinstance(seeds, tuple | list) else seeds
        raise UserError(f"federate makes one run, and seeds={given} asks for several: call it with seed=... for each.")


def check_outputs(
    task: Task, theta: torch.Tensor, buffers: torch.Tensor, clients: Any, classes: int, usual: bool
) -> Task:
    """The task, told whether its model draws (`settled`), with its loss and its metrics as they are to be called.
    Raises UserError where the model, the loss or a metric does not fit the first client's samples.
    """
    client = next((c for c in clients.participants if clients.size(c)), None)
    if client is None:
        raise UserError("no client has a training sample: give more data or fewer clients.")
    samples = clients.samples(client)
    x, y = samples.batch(torch.arange(min(2, clients.size(client)), device=samples.index.device))
    advice = lambda error: _meant_as_tokens(task, theta, buffers, x) or _as_wide(x, error) or _as_row(x)
    with tried(f"the model does not take samples {_shapes(x)}", advice):
        outputs = task.space.outputs(theta, x, buffers)
    if usual:
        refuse_outputs(task.name, outputs, y, classes)
    shapes = [list(part.shape) for part in (outputs, y) if isinstance(part, torch.Tensor)]
    took = "outputs {} and labels {}".format(*shapes) if len(shapes) == 2 else "the model's outputs"
    with tried(f"the loss does not take {took}"), unchanged("the loss", outputs, y):
        task = replace(task, loss=fitting_shape(task.loss, outputs, y))
        loss = task.loss(outputs, y)
    if not isinstance(loss, torch.Tensor) or loss.shape:
        what = f"numbers of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else f"a {type(loss).__name__}"
        raise UserError(f"the loss gives {what} for a batch: it must give one number, their mean, as a tensor.")
    if usual and classes == 1 and task.name == "classification":
        raise UserError("all labels are of one class, and there is nothing to learn: give two classes or more.")
    rows = torch.arange(MEASURED, device=samples.index.device) % clients.size(client)
    batch = samples.batch(rows)
    with tried(f"the model does not take {MEASURED} samples {_shapes(x)}"):
        predicted = task.space.outputs(theta, batch[0], buffers)
    if len(shapes) == 2 and len(y) == shapes[0][-1]:  # so many targets may be taken for one of each output
        shapes = [list(part.shape) for part in (predicted, batch[1])]
        with tried("the loss does not take outputs {} and labels {}".format(*shapes)):
            task.loss(predicted, batch[1])
    task = replace(
        task, metrics=tuple(fitting_metric(metric, predicted, batch[1], MEASURED) for metric in task.metrics)
    )
    with tried(f"the model cannot be trained on samples {_shapes(x)}", _as_constant):
        return settled(task, theta, buffers, samples)


def scores_given(setup: Setup, clients: Any) -> int:
    """How many scores the model of a classification gives for a sample of the first client that trains."""
    samples = clients.samples(clients.participants[0])
    x, _ = samples.batch(samples.index[:1])
    return scores(setup.task.space.outputs(setup.initial, x, setup.initial_buffers)).shape[-1]


def _shapes(tree: Any) -> str:
    """The shapes of one sample's parts, in words."""
    if isinstance(tree, torch.Tensor):
        return f"of shape {list(tree.shape[1:])}"
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return "with the parts " + ", ".join(f"{name} {_shapes(part).removeprefix('of shape ')}" for name, part in parts)


def _meant_as_tokens(task: Task, theta: torch.Tensor, buffers: torch.Tensor, x: Any) -> str:
    """What to do if whole numbers were read as features, and the model would take them as tokens."""
    if not isinstance(x, torch.Tensor) or x.dim() != 2 or (x != x.round()).any():
        return ""
    try:
        task.space.outputs(theta, x.long(), buffers)
    except Exception:  # another's code may raise anything
        return ""
    return ' (numbers are read as features: give tokens by name, {"input_ids": array}, or a Federation of tensors)'


def _as_wide(x: Any, error: Exception) -> str:
    """What to do if a first linear layer takes another number of features."""
    if not isinstance(x, torch.Tensor) or x.dim() != 2 or "shapes cannot be multiplied" not in str(error):
        return ""
    wide = x.shape[1]
    return f" (a sample has {wide} numbers: begin with a layer that takes as many, as nn.Linear({wide}, ...))"


def _as_row(x: Any) -> str:
    """What to do if a model takes rows of features, and each sample is a number."""
    return " (a sample is one number: give x[:, None])" * (isinstance(x, torch.Tensor) and x.dim() == 1)


def _as_constant(error: Exception) -> str:
    """What to do if the loss does not depend on the model, as far as its gradient tells."""
    lacking = any(words in str(error) for words in ("does not require grad", "not to have been used"))
    return " (the loss has no gradient: make it of the model's outputs, without detach, argmax, int or NumPy)" * lacking


def settled(task: Task, theta: torch.Tensor, buffers: torch.Tensor, samples: Any) -> Task:
    """The task, marked whether its model draws numbers as it trains: found out once, on two of these samples, with
    which a gradient is tried. A model that changes its inputs in place is given copies of them from now on.

    Raises UserError if numbers come from a hidden generator, because then a seed would not fix the run, and if a call
    depends on earlier ones or changes what is not its own, because clients share calls in any order.
    """
    try:
        return _settled(task, theta, buffers, samples)
    except ChangesInputs:
        return _settled(replace(task, space=task.space.copying()), theta, buffers, samples)


def _settled(task: Task, theta: torch.Tensor, buffers: torch.Tensor, samples: Any) -> Task:
    device, space = buffers.device, task.space
    batch = samples.batch(torch.arange(2, device=device).clamp(max=int(samples.size) - 1))
    hidden = lambda: torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else ()):
        states, outputs, drawings = [hidden()], list[Any](), list[Drawing]()
        with space.watched(theta, batch[0]):
            for _ in range(2):
                drawings.append(Drawing(theta.new_zeros(2, dtype=torch.int64)))
                with drawings[-1]:
                    outputs.append(space.training_outputs(theta, batch[0], buffers))
                states.append(hidden())
                outputs.append(space.outputs(theta, batch[0], buffers))
                states.append(hidden())
        for when, (before, after) in zip(("trains", "is evaluated") * 2, pairwise(states), strict=True):
            if not torch.equal(before, after):
                raise UserError(
                    f"the model draws random numbers as it {when} that would come from a hidden generator: leave that "
                    "out, or draw in training alone, by dropout, torch.rand, randn, normal or bernoulli."
                )
        for when, one, other in zip(("trains", "is evaluated"), outputs[:2], outputs[2:], strict=True):
            if not space.alike(one, other):
                raise UserError(
                    f"the model keeps state between calls, as two equal ones differ as it {when}: keep it in a "
                    "floating-point buffer (register_buffer), which clients average, or leave it out."
                )
        refuse_wider(task.name, outputs[0][0], outputs[1])
        task = replace(task, draws=bool(drawings[0].draws.count))
        passes, gradients = Passes(task, buffers), list[torch.Tensor]()
        for seed in (0, 1) if task.draws else (0,):
            torch.manual_seed(seed)
            gradients.append(Loop().differentiate(passes.with_buffers(passes.loss, batch), theta)[0])
        if not torch.allclose(gradients[0], gradients[-1], rtol=1e-3, equal_nan=True):
            raise UserError(
                "the model's gradients depend on a hidden generator, as when a forward pass is run again for them "
                "(activation checkpointing) or a loss draws: leave that out, or dropout."
            )
    return task


def check_batches(setup: Setup, clients: Any, work: Work) -> None:
    """Raise UserError if no memory holds the numbers of the samples of a client's batches, and where the model takes no
    batch of one sample, for a client with one test sample, one whose work has such a batch, or a piece that makes one.
    """
    refuse_too_many_steps(clients, work)
    samples = clients.samples(next(c for c in clients.participants if clients.size(c)))
    x, _ = samples.batch(samples.index.new_zeros(1))
    try:
        with tried("the model cannot be evaluated on a batch of one sample"):
            setup.task.space.outputs(setup.initial, x, setup.initial_buffers)
    except UserError as error:
        for client, name in enumerate(clients.names):
            if clients.test_size(client) == 1:
                raise UserError(f"client {name!r} has one test sample, and {error}") from None
    try:
        with tried("the model cannot be trained on a batch of one sample"):
            passes = setup.task.stream().within(setup.task.space.training_outputs)
            passes(setup.initial, x, setup.initial_buffers)
    except UserError as error:
        for client, name in enumerate(clients.names):
            size = clients.size(client)
            fewest, who = work.smallest(size), f"client {name!r} (training samples: {size})"
            if size and fewest == 1:
                raise UserError(f"{who} has a batch of one, and {error}") from None
            for piece in setup.pieces if size else ():
                if fewest < (needed := piece.smallest_batch):
                    few = "" if needed == inf else f" of a batch of fewer than {needed:g}, which {who} has"
                    raise UserError(f"{piece} takes a gradient at a single sample{few}, and {error}") from None


def refuse_too_many_steps(clients: Any, work: Work) -> None:
    """Refuse more local steps than this machine could list the samples of, as it does before a client's first step."""
    client = next(c for c in clients.participants if clients.size(c))
    name, size, steps = clients.names[client], clients.size(client), work.steps
    most = steps.high if isinstance(steps, Between) and work.epochs is None else work.count(0, 0, name, size)
    held = memory()
    if 2 * 8 * most * min(work.batch, size) > held:  # each pass by itself, and then all together
        what = f"steps={shown(most)}" if work.epochs is None else f"epochs={shown(work.epochs)}"
        raise UserError(
            f"{what} is more local work in a round than client {name!r} can have: the numbers of its batches' samples "
            f"alone exceed a memory of {held / 1e9:,.0f} GB: give fewer."
        )
