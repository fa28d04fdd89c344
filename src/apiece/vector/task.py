"""What is learned: a module's vector space and a loss, as functions of vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from apiece.data.tokens import IGNORED
from apiece.errors import UserError
from apiece.vector.drawing import Still, Stream
from apiece.vector.metric import Metric
from apiece.vector.space import Space

Differentiate = Callable[[Callable[[Tensor], tuple[Tensor, Any]], Tensor], tuple[Tensor, Tensor, Any]]


def scores(outputs: Any) -> Any:
    """What a model predicts: its outputs, or the part of them that is named `logits`, as transformers names it."""
    if isinstance(outputs, Tensor):
        return outputs
    return cast("dict[str, Any]", outputs).get("logits", outputs) if isinstance(outputs, dict) else outputs


def cross_entropy(outputs: Any, y: Tensor) -> Tensor:
    """Mean cross entropy of scores [B, C] against labels [B]; of scores [B, T, V] against tokens [B, T], the mean over
    all tokens of the batch that are not IGNORED.
    """
    outputs = scores(outputs)
    if y.dim() > 1 and outputs.shape[:-1] == y.shape:
        return over_targets(outputs.flatten(0, -2), y.flatten())
    return F.cross_entropy(outputs, y, ignore_index=IGNORED)


def over_targets(outputs: Tensor, y: Tensor) -> Tensor:
    """Mean cross entropy over the targets that are not IGNORED; 0, with gradient 0, where a batch has none."""
    none = (y == IGNORED).all()
    # a mean of nothing is 0/0, and so are its derivatives: it is taken of class 0 instead, and left out
    return F.cross_entropy(outputs, y.masked_fill(none, 0), ignore_index=IGNORED).masked_fill(none, 0.0)


def accuracy(outputs: Any, y: Tensor) -> Tensor:
    """Whether each sample's largest score is its label's [B]; for tokens [B, T], the share that is right of those not
    IGNORED, 0 where all are. It is NaN where a score is.
    """
    largest = scores(outputs).max(-1)
    dtype = torch.get_default_dtype() if y.dim() < 2 else torch.float64
    right = (largest.indices == y).to(dtype).masked_fill(largest.values.isnan() & (y != IGNORED), torch.nan)
    return right if y.dim() < 2 else right.sum(-1) / targets(y).clamp(min=1)


def targets(y: Any) -> Tensor:
    """The number of targets of each sample [B], its weight in means: 1; for tokens [B, T], those not IGNORED."""
    if isinstance(y, Tensor) and y.dim() > 1 and not y.is_floating_point():
        return (y != IGNORED).flatten(1).sum(1)
    first = tree_leaves(y)[0]
    return torch.ones(len(first), dtype=torch.int64, device=first.device)


ACCURACY = Metric("accuracy", accuracy, unit="%")


@dataclass(frozen=True)
class Task:
    """A model's vector space, the loss of (outputs, y), the metrics, the first of which is shown first, augmentation,
    and the name of what is learned (`apiece.data.tasks`).

    `augment`, where there is one, is a pure function (x, draws) of a batch, applied to training batches only. `draws`
    says whether the model draws numbers as it trains (dropout, noise); calls of a model that does not need no stream.

    Args:
        space: the model.
        loss: a function of (outputs, y) that gives the mean over a batch, [].
        metrics: of predictions, the first shown first.

    >>> import torch
    >>> Task(Space(torch.nn.Linear(2, 3))).metrics[0].name
    'accuracy'
    """

    space: Space
    loss: Callable[[Any, Any], Tensor] = cross_entropy
    metrics: tuple[Metric, ...] = (ACCURACY,)
    augment: Any = None
    draws: bool = True
    name: str = "classification"
    _forms: dict[Any, torch.Size | None] = field(default_factory=dict[Any, Any], init=False, repr=False, compare=False)

    def stream(self, key: Tensor | tuple[()] = ()) -> Stream | Still:
        """The stream of a client's draws in a round, by its key, int64 [2]; without a key it is the same for all."""
        if not self.draws:
            return Still()
        return Stream(key if isinstance(key, Tensor) else torch.zeros(2, dtype=torch.int64, device=self.space.device))

    def form(self, theta: Tensor, x: Any, buffers: Tensor) -> torch.Size | None:
        """The shape of one sample's scores, which the model is asked for once for each shape of inputs; None where its
        outputs are no tensor.
        """
        key = tuple(leaf.shape[1:] for leaf in tree_leaves(x))
        if key not in self._forms:
            found = scores(self.space.outputs(theta, tree_map_only(Tensor, lambda leaf: leaf[:2], x), buffers))
            self._forms[key] = found.shape[1:] if isinstance(found, Tensor) else None
        return self._forms[key]


class Passes:
    """The base loss of one descent of `steps` steps: a training forward pass that reads and moves the buffers, and
    draws from `stream`.

    Under vmap and grad a moved buffer belongs to the transformed call, so it is returned beside the loss as its
    auxiliary value and never kept in the closure.
    """

    def __init__(self, task: Task, buffers: Tensor, stream: Stream | Still | None = None, steps: int = 0):
        self.task, self.buffers, self.moved = task, buffers, buffers
        self.step: int | Tensor = 0
        self.stream = stream or task.stream()
        self.forward = self.stream.within(task.space.training_outputs)
        self.keys = self.stream.steps(steps) if steps else None

    def loss(self, theta: Tensor, batch: Any) -> Tensor:
        x, y = batch
        outputs, self.moved = self.forward(theta, x, self.buffers)
        return self.task.loss(outputs, y)

    def with_buffers(
        self, objective: Callable[[Tensor, Any], Tensor], batch: Any
    ) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """theta -> (objective, the buffers after its pass)."""

        def value(theta: Tensor) -> tuple[Tensor, Tensor]:
            self.moved = self.buffers
            out = objective(theta, batch)
            moved, self.moved = self.moved, self.buffers
            return out, moved.detach()

        return value


class TaskView(NamedTuple):
    """The task as a piece may use it: in evaluation mode, with the client's buffers, which nothing here moves."""

    task: Task
    buffers: Tensor
    differentiate: Differentiate
    stream: Stream | Still | None = None

    def outputs(self, theta: Tensor, x: Any) -> Tensor:
        return scores(self.task.space.outputs(theta, x, self.buffers))

    def features(self, theta: Tensor, x: Any) -> Tensor:
        return self.task.space.features(theta, x, self.buffers)

    def head(self, theta: Tensor, z: Tensor) -> Tensor:
        return self.task.space.head(theta, z)

    def loss(self, outputs: Any, y: Any) -> Tensor:
        """The loss of outputs; UserError for a model in their place."""
        size = self.task.space.size
        if isinstance(outputs, Tensor) and outputs.shape == (size,) and len(tree_leaves(y)[0]) != size:
            raise UserError(
                "view.task.loss is given a model where it takes (outputs, y): write "
                "view.task.loss(view.task.outputs(theta, x), y)."
            )
        return self.task.loss(outputs, y)

    def by_tensor(self, function: Callable[..., Tensor], *vectors: Tensor) -> Tensor:
        """A vector [D] made tensor by tensor: `function` of these vectors' parts, in the shape of each parameter."""
        return self.task.space.by_tensor(function, *vectors)

    def gradient(self, theta: Tensor, batch: Any) -> Tensor:
        """The task gradient [D] on a batch, in training mode; buffers stay, and a local step has the step's draws."""
        passes = Passes(self.task, self.buffers, self.stream)
        return self.differentiate(passes.with_buffers(passes.loss, batch), theta)[0]
