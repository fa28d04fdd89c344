"""What a node tells of its data, and the federation that the coordinator makes of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

import torch
from torch import Tensor

from apiece.data.tasks import REAL
from apiece.errors import UserError
from apiece.wired.remote import FEW, Remote
from apiece.wired.transport import Transport

KINDS = ("float", "int64")
LARGEST = 10**9  # no count or length that a node tells may be larger


@dataclass(frozen=True)
class Facts:
    """A node's data without its samples: counts, forms and names.

    Args:
        name: the node's.
        samples, tests: how many it trains on and is tested on.
        shape: of one sample, as the model gets it.
        kind: "float" for features and images, "int64" for tokens.
        target: the shape of one sample's target, [] for a class or a number.
        target_kind: "int64" or "float".
        task: what is learned.
        classes: how many classes or tokens there are, by this node's data.
        labels: the names of its classes, in order; [] where targets are no classes.
        columns: the names of the columns that became the sample, in order; [] where there are none.
    """

    name: str
    samples: int
    tests: int
    shape: list
    kind: str
    target: list
    target_kind: str
    task: str
    classes: int
    labels: list
    columns: list

    @classmethod
    def of(cls, told: dict[str, Any]) -> Facts:
        """Facts that came from elsewhere; raises UserError for what is none."""
        kinds, values = get_type_hints(cls), {f.name: told.get(f.name) for f in dataclasses.fields(cls)}
        fits = all(type(value) is kinds[name] for name, value in values.items())
        if not fits or not _sound(values):
            raise UserError("it told of its data what cannot be: it has another version of apiece, or is broken.")
        return cls(**values)  # pyright: ignore[reportArgumentType]

    @property
    def form(self) -> dict[str, Any]:
        """What the data of all nodes must have in common."""
        kept = ("shape", "kind", "target", "target_kind", "task", "columns")
        return {name: getattr(self, name) for name in kept} | ({} if self.labels else {"classes": self.classes})


def _sound(values: dict[str, Any]) -> bool:
    sizes = [values["samples"], values["tests"], values["classes"], *values["shape"], *values["target"]]
    counts = all(type(size) is int and 0 <= size <= LARGEST for size in sizes)
    names = all(isinstance(name, str) for name in values["columns"])
    labels = all(type(label) in (int, float, str, bool) for label in values["labels"])
    kinds = {values["kind"], values["target_kind"]} <= set(KINDS)
    return counts and names and labels and kinds and math.prod([*values["shape"], *values["target"]]) <= LARGEST


def federation(
    told: Sequence[Facts], connect: Callable[[str, str], Transport], real: torch.dtype = torch.float32
) -> Remote:
    """The federation of these nodes, in this order, whose real numbers have this type in the run; raises UserError if
    they do not fit one another.
    """
    first = told[0]
    for other in told[1:]:
        for name, value in first.form.items():
            if (there := other.form.get(name)) != value:
                raise UserError(
                    f"the data of nodes {first.name!r} and {other.name!r} do not fit: {name} is {value} on the first "
                    f"and {there} on the second; let all nodes prepare their data alike, and begin again."
                )
    labels = united(told)
    tests = tuple(facts.tests for facts in told)
    names = [facts.name for facts in told]
    return Remote(names, tuple(f.samples for f in told), tests, _like(first, len(labels), real), labels, connect)


def united(told: Sequence[Facts]) -> tuple[Any, ...]:
    """The names of all classes of all nodes, in order; raises UserError if some are numbers and others are text."""
    everything = {label for facts in told for label in facts.labels}
    try:
        return tuple(sorted(everything))
    except TypeError:
        raise UserError(
            f"the classes of the nodes are numbers on some and text on others ({sorted(map(str, everything))}): let "
            "all nodes name them alike, and begin again."
        ) from None


def _like(facts: Facts, classes: int, real: torch.dtype) -> tuple[Tensor, Tensor]:
    """Made-up samples of the right form: zeros, the first target the largest class."""
    types = {"float": real, "int64": torch.int64}
    x = torch.zeros(FEW, *facts.shape, dtype=types[facts.kind])
    y = torch.zeros(FEW, *facts.target, dtype=types[facts.target_kind])
    if facts.task not in REAL and facts.target_kind == "int64":
        y[0] = max((classes or facts.classes) - 1, 0)
    return x, y
