"""What a node tells of its data, and the federation that the coordinator makes of it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, get_type_hints

import torch
from torch import Tensor

from apiece.data.tasks import OWN, REAL, TASKS
from apiece.errors import UserError
from apiece.wired.remote import FEW, Remote
from apiece.wired.transport import Transport

KINDS = ("float", "int64")
FORMS = {  # of a task's targets: (kind, dimensions, whether they are classes with names)
    "classification": [("int64", 0, True), ("int64", 0, False)],
    "multilabel": [("float", 1, False), ("int64", 1, False)],
    "regression": [("float", 0, False), ("float", 1, False)],
    "forecasting": [("float", 0, False), ("float", 1, False), ("float", 2, False)],
    "segmentation": [("int64", 2, False)],
    "language-modeling": [("int64", 1, False)],
}
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
        classes: how many classes, of samples or of pixels, or tokens there are, by this node's data.
        labels: the names of its classes, in order; [] where targets are no classes.
        columns: the names of the columns that became the sample, in order, and what was made of them; [] where there
            are none.
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
        wrong = [name for name, value in values.items() if type(value) is not kinds[name]]
        if why := f"its {wrong[0]} is no {kinds[wrong[0]].__name__}" if wrong else doubt(values):
            raise UserError(f"it told of its data what cannot be, as {why}: it has another version, or is broken.")
        return cls(**values)  # pyright: ignore[reportArgumentType]

    @property
    def form(self) -> dict[str, Any]:
        """What the data of all nodes must have in common."""
        kept = ("columns", "shape", "kind", "target", "target_kind", "task")
        counted = self.labels or self.task == "segmentation"  # a node may have no pixel of some classes
        return {name: getattr(self, name) for name in kept} | ({} if counted else {"classes": self.classes})


def doubt(values: dict[str, Any]) -> str:
    """Why facts of the right types cannot be, or cannot be told, in a clause; nothing where they can."""
    sizes = [values["samples"], values["tests"], values["classes"], *values["shape"], *values["target"]]
    if not all(type(size) is int and 0 <= size <= LARGEST for size in sizes):
        return "its counts and shapes are no whole numbers from 0 on"
    if math.prod([*values["shape"], *values["target"]]) > LARGEST:
        return "a sample of it is larger than any"
    labels, words = values["labels"], [values["name"], *values["columns"]]
    if strange := [word for word in words if not _tellable(word, str)]:
        return f"its column {strange[0]!a} is no text in UTF-8"
    if strange := [label for label in labels if not _tellable(label, int, float, str, bool)]:
        return f"its class {strange[0]!a} is neither a number nor a text in UTF-8"
    if labels and not len(labels) == len(set(labels)) == values["classes"]:
        return f"it has {values['classes']} classes, and {len(set(labels))} names of such"
    if not {values["kind"], values["target_kind"]} <= set(KINDS) or values["task"] not in (*TASKS, OWN):
        return f"its task {values['task']!a} or a kind of its numbers is not known"
    form = values["target_kind"], len(values["target"]), bool(labels)
    if form not in FORMS.get(values["task"], (form,)):
        return f"its targets, {form[0]} {values['target']}, are not those of {values['task']}"
    return ""


def _tellable(word: Any, *kinds: type) -> bool:
    """Whether a word is of these types, and the same once it has crossed as JSON."""
    try:
        return type(word) in kinds and bool(json.dumps(word, allow_nan=False, ensure_ascii=False).encode())
    except ValueError:
        return False


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
                what, one, two = _apart(name, value, there)
                raise UserError(
                    f"the data of nodes {first.name!r} and {other.name!r} do not fit: {what} is {one} on the first and "
                    f"{two} on the second; let all nodes prepare their data alike (`apiece join` with --input, "
                    "--prepare, --task or --resize), and begin again."
                )
    labels = united(told)
    tests = tuple(facts.tests for facts in told)
    names = [facts.name for facts in told]
    like = _like(first, len(labels) or max(facts.classes for facts in told), real)
    return Remote(names, tuple(f.samples for f in told), tests, like, labels, tuple(first.columns), connect)


def _apart(name: str, one: Any, two: Any) -> tuple[str, Any, Any]:
    """(what differs, its value here, its value there): of columns, of which there may be many, the first that do."""
    if name != "columns" or not (one and two):
        return name, one, two
    pairs = enumerate(zip_longest(one, two), 1)
    number, here, there = next((number, *pair) for number, pair in pairs if pair[0] != pair[1])
    word = lambda column: "missing" if column is None else repr(column)
    return f"column {number}", word(here), word(there)


def united(told: Sequence[Facts]) -> tuple[Any, ...]:
    """The names of all classes of all nodes, in order. A table's labels are text where some are codes, as 01 is, so
    that a node without such a code has numbers; beside codes, a number is its own text. Raises UserError if numbers
    stand beside other text, or beside the same number written otherwise.
    """
    known = {label for facts in told for label in facts.labels}
    texts = {label for label in known if isinstance(label, str)}
    spelled = {str(label) for label in known - texts}
    alike = {text.lstrip("0") for text in texts - spelled} & {text.lstrip("0") for text in spelled}
    codes = all(map(str.isdecimal, texts)) and all(type(label) is int for label in known - texts)
    if texts and spelled and (alike or not codes):
        raise UserError(
            f"the classes of the nodes are numbers on some and text on others ({sorted(texts | spelled)}): let "
            "all nodes name them alike, and begin again."
        )
    return tuple(sorted(texts | spelled if texts else known))


def _like(facts: Facts, classes: int, real: torch.dtype) -> tuple[Tensor, Tensor]:
    """Made-up samples of the right form: zeros, the first target the largest class."""
    types = {"float": real, "int64": torch.int64}
    x = torch.zeros(FEW, *facts.shape, dtype=types[facts.kind])
    y = torch.zeros(FEW, *facts.target, dtype=types[facts.target_kind])
    if facts.task not in REAL and facts.target_kind == "int64":
        y[0] = max(classes - 1, 0)
    return x, y
