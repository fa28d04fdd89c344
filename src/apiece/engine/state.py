"""What the engine passes around: all of it named tuples of tensors, and nothing that behaves."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_structure, tree_unflatten

from apiece.data.samples import Samples
from apiece.storage.rows import numbered
from apiece.system.device import Crossing, crossing


class Server(NamedTuple):
    """All that the server keeps between rounds."""

    round: int
    params: Tensor
    buffers: Tensor
    optimiser: Any
    memory: dict[str, Any]  # what each piece remembers, by the name of its type
    broadcast: Any = ()  # what the broadcast remembers

    def __repr__(self) -> str:
        kept = ", ".join(flatten("memory", self.memory)) or "nothing"
        return f"Server(round={self.round}, parameters={self.params.numel()}, remembers {kept})"


class Shared(NamedTuple):
    """What goes to every client of a cohort."""

    round: Any
    lr: Any
    model: Any  # [D], or () where each client is sent its own
    buffers: Tensor
    told: dict[str, Any]  # what each piece tells its clients of that


class Each(NamedTuple):
    """What one client works on: what it was sent, its row, its samples, and what was drawn for it."""

    sent: Any  # its own model [D], or () where all are sent the same
    who: Any
    seen: Any  # the last round of this client that was counted, -1 for none
    row: dict[str, Tensor]
    samples: Samples
    batches: Any  # [K, B] rows of the samples, or a tuple of K index tensors
    steps: Any
    augment: Any
    draws: tuple
    weight: Any
    described: Any = ()  # [B] rows of the samples that were drawn for a descriptor


class Reply(NamedTuple):
    """What an operation gives back: what leaves the client, its new row, and what only a simulation can look at."""

    said: Any
    row: dict[str, Tensor]
    watched: dict[str, Any]
    finite: Any

    def crossing(self, device: torch.device) -> Crossing:
        """The same, with what the host will read of it on its way there from the device: weight, row, and whether it
        is finite.
        """
        if device.type == "cpu":
            return Crossing(self)
        begun = crossing((getattr(self.said, "weight", None), self.row, self.finite))
        weight, row, finite = begun.thing
        said = self.said if weight is None else self.said._replace(weight=weight)
        return Crossing(self._replace(said=said, row=row, finite=finite), begun.events)


class Plan(NamedTuple):
    """What the edge decided for one round."""

    cohort: list[int]
    silent: frozenset[int]
    lr: float


def finite(*trees: Any) -> Tensor:
    """Whether every real number in these trees is finite: told by their sum, in a fortieth of the time of looking at
    each.
    """
    real = (leaf for leaf in tree_leaves(trees) if isinstance(leaf, Tensor) and leaf.is_floating_point())
    return torch.isfinite(torch.as_tensor(sum(leaf.sum() for leaf in real)))


def flatten(prefix: str, tree: Any) -> dict[str, Tensor]:
    """The leaves of a tree by their fields and keys, in a tuple without names by number: `memory.Scaffold.variate`."""
    if not isinstance(tree, (tuple, list, dict)):
        return {prefix: tree}
    parts = tree.items() if isinstance(tree, dict) else zip(getattr(tree, "_fields", range(len(tree))), tree)
    return {name: leaf for key, part in parts for name, leaf in flatten(f"{prefix}.{key}", part).items()}


def restore(template: Any, named: dict[str, Tensor], prefix: str) -> Any:
    """The tree of that template from leaves by name: the inverse of `flatten`, for what was kept by number too."""
    names = list(flatten(prefix, template))
    if not named.keys() >= set(names):
        names = list(numbered(names))
    return tree_unflatten([named[name] for name in names], tree_structure(template))
