"""The pages of the algorithms: what their docstrings say, and what docs/conformance.md has measured of each."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from making.api import paragraphs
from making.markdown import console, described, escaped, put, table

from apiece.algebra.composition import Algorithm
from apiece.language.algorithms import NAMED
from apiece.language.expression import catalog
from apiece.language.grammar import parse

GROUPS = {
    "Averaging, and what clients add to it": "fedavg fedprox scaffold relaxed_init fedinit feddyn fedcm fedsam fedreg",
    "The server's step": "fednova fedexp fedavgm fedadam fedyogi fedadagrad",
    "When parameters are synchronized": "fedals period diloco streaming_diloco",
    "Parameters of the client's own": "fedavg_p scaffold_p fedper lg_fedavg fedbn fedsim fedalt fedrep",
    "A model of the client's own": "ditto apfl pfedme per_fedavg fine_tune knn_per class_mask",
    "Models written by the server": "pefll pfedhn",
    "Features, made samples, and noise": "moon feddecorr fedcog fedgen vhl",
    "Adapters": "fedit ffa_lora fedsa_lora rolora fed_dpa",
    "Reference rows": "local centralized",
}
ADAPTED = "--model mlp --adapter \"lora(r=4, targets='fc1,fc2', train=head)\""
NEEDS = {  # what the command needs beside the name: the bundled data and `mlp` have no norm layer and no adapter
    "fedbn": "--model resnet20",
    "fedgen": "--lr 0.01",
    **dict.fromkeys(("fedit", "ffa_lora", "fedsa_lora", "rolora"), ADAPTED),
    "fed_dpa": ADAPTED.replace("train", "local=4, train"),
}
SMALLER = {"fedcog": '"fedcog(samples=32, steps=20)"'}  # by default every client makes 256 images in 100 steps
CONFORMANCE = Path(__file__).parents[1] / "conformance.md"
_REASON = re.compile(r"none \((\d+)\)")


def write(folder: Path) -> None:
    """Write a page for each named algorithm, and an index of the groups."""
    folder.mkdir(exist_ok=True)
    measured = {title: dict(_rows(title)) for title in ("Algorithms", "Algorithms: what they cost")}
    for name in NAMED:
        put(folder / f"{name}.md", "\n\n".join(_page(name, measured)) + "\n")
    put(folder / "index.md", "\n\n".join(_index()) + "\n")


def command(name: str) -> str:
    """A command that runs the algorithm on the bundled data in some seconds."""
    needs = f" {NEEDS[name]}" if name in NEEDS else ""
    return f"apiece run --algorithm {SMALLER.get(name, name)} --clients 10 --rounds 5 --steps 10{needs}"


def _index() -> Iterator[str]:
    lines = {entry.name: entry.line for entry in catalog(NAMED)}
    yield "# Algorithms"
    yield (
        "Each has a page: its equation and source, what it stores and sends, what the tests measure of it, and when to "
        "use it. Most can be added to each other, as in `scaffold + relaxed_init(0.1)`; a sum without a meaning is "
        "refused in one sentence. `apiece algorithms` prints this list."
    )
    for title, names in GROUPS.items():
        rows = [(f"[`{name}`]({name}.md)", escaped(lines[name])) for name in names.split()]
        yield f"## {title}\n\n{table(('algorithm', 'what it does'), rows)}"
        yield "\n".join(["```{toctree}", ":hidden:", "", *names.split(), "```"])


def _page(name: str, measured: dict[str, dict[str, list[str]]]) -> Iterator[str]:
    function = NAMED[name]
    summary, *own = paragraphs(function)
    paper, when = (next((p for p in own if p.startswith(start)), "") for start in ("The paper's", "Use it"))
    made: Algorithm = function()
    yield f"# {name}\n\n{escaped(summary)}"
    yield f"## When to use it\n\n{escaped(when)}" if when else ""
    yield f"## Run it\n\n{console(command(name))}"
    yield "## Equation and source"
    yield from described([p for p in own if p not in (paper, when)])
    for kind in _kinds(made):
        yield f"### The {_role(kind)} `{kind.__name__}`"
        yield from described(_of_kind(kind))
    yield from _arguments(function, paper)
    yield from _refused(made)
    yield from _measured(name, measured)


def _kinds(made: Algorithm) -> list[type]:
    """The classes that give an algorithm its equation: its pieces, the server's optimizer and the generator."""
    server = [made.server] if made.server is not None else []
    generator = [] if type(made.broadcast).__name__ == "Identity" else [made.broadcast]
    return [type(part) for part in (*made.pieces, *server, *generator)]


def _role(kind: type) -> str:
    return "server's optimizer" if kind.__module__.endswith("server_optim") else "piece"


def _of_kind(kind: type) -> list[str]:
    """A class's own description and that of the class which it goes on from."""
    base = kind.__mro__[1]
    return paragraphs(kind) + (paragraphs(base) if base.__module__ == kind.__module__ else [])


def _arguments(function: Any, paper: str) -> Iterator[str]:
    parameters = inspect.signature(function).parameters.values()
    rows = [(f"`{p.name}`", f"`{p.annotation}`".replace("|", "\\|"), f"`{p.default!r}`") for p in parameters]
    if rows or paper:
        yield "## Arguments and settings"
    if rows:
        yield table(("argument", "type", "default"), rows)
    if paper:
        yield f"{escaped(paper)} A run has its own settings; `apiece algorithms --json` has these as `paper_defaults`."


def _refused(made: Algorithm) -> Iterator[str]:
    """What the pieces exclude, beside arguments that are out of range."""
    reasons = {f"{other}: {reason}." for piece in made.pieces for other, reason in piece.excludes.items()}
    if reasons:
        yield "## What it cannot be added to\n\n" + "\n".join(f"- {escaped(reason)}" for reason in sorted(reasons))


def _measured(name: str, measured: dict[str, dict[str, list[str]]]) -> Iterator[str]:
    rows = [row for of in measured.values() if name in of for row in zip(of["algorithm"], of[name], strict=True)]
    if not rows:
        return
    yield "## Measured"
    yield (
        "The tests measure these when `make conformance` is run; [conformance](../conformance.md) says what each row "
        "means. Storage and traffic are in sizes of the model, an `mlp` of 610 parameters."
    )
    yield table(("what", "measured"), [(what, _REASON.sub(_reason, figure)) for what, figure in rows[1:]])
    wrong = [row[0] for oracle, row in _rows("Wrong readings that the oracles catch") if oracle == name]
    if wrong:
        yield "These wrong readings of the paper are caught:\n\n" + "\n".join(f"- {escaped(text)}" for text in wrong)


def _reason(number: re.Match[str]) -> str:
    """Why an algorithm has no degenerate identity, in the place of that reason's number."""
    reasons = re.findall(rf"^{number[1]}\. \w+: (.*)\.$", _section("Why there is no degenerate identity"), re.M)
    return f"none: {escaped(reasons[0])}"


def _section(title: str) -> str:
    return CONFORMANCE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def _rows(title: str) -> Iterator[tuple[str, list[str]]]:
    """(the name of an algorithm, its cells) for the rows of a table; the heading is called `algorithm`."""
    for line in _section(title).splitlines():
        if line.startswith("|") and not line.startswith("|--"):
            first, *cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            name = parse(first.strip("`"))[0].name if first.startswith("`") else "algorithm"
            yield name, cells
