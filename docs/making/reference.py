"""The pages of the reference that the code gives: commands, settings, numbers of a run, errors."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints
from unittest.mock import patch

from making import api
from making.markdown import console, escaped, literal, put, table

import apiece
from apiece import cli
from apiece.commands import COMMANDS
from apiece.config.settings import GROUPS, Config, about
from apiece.report.metrics import Measure, Number, numbers

SOURCE = Path(apiece.__file__).parent
ERRORS = {  # folders by what a user was about to do
    "The command line and its settings": "cli.py commands config language",
    "Data": "data",
    "Models": "networks vector",
    "Algorithms": "algebra pieces engine contract",
    "Runs and their folders": "experiment storage measure lifts wired system",
    "Real machines": "consortium deploy",
    "Reports and papers": "report reproduce papers",
}

# how each page begins, or goes on
COMMAND_LINE = """\
`apiece COMMAND --help` prints what stands here, and `apiece --version` the version. `python -m apiece` is the
same as `apiece`. The [configuration](configuration.md) describes the settings of `run` and `grid` in
groups, and [exit codes](exit-codes.md) have a page of their own."""
CONFIGURATION = """\
A setting has one name everywhere: `--eval-every 5` on the command line, `eval_every = 5` below `[config]` in a
TOML file, `eval_every=5` in `apiece.federate`. `apiece run --config FILE` takes a file, such as the `run.toml`
of a run, and flags override it."""
METRICS = """\
`metrics.jsonl` in a [run folder](run-folder.md) has one JSON object for each round. `accuracy` stands here for
the run's first metric: a run that measures F1 has `global_f1`, `personal_f1_mean` and so on. Numbers that are
sent count from the first round on; a number that was not measured in a round is not in its line. A share is
between 0 and 1, and tables show it in percent."""
METRICS_MORE = """\
A number that an algorithm's piece logs has the piece's name, as `FedExP.step_size`. A number that a watcher of
your own returns has the name that you gave it (`federate(watchers=[...])`). `consensus` has a value for each
layer of the model."""
SAID = """\
Bad input ends in one sentence and exit code 2; in Python it is `apiece.UserError`. These are the sentences, as
the code has them: what stands in braces is filled in. Each names what was wrong, what is allowed, and what to
do. Settings that are out of range are named together, in one sentence."""


def write(folder: Path) -> None:
    """Write the generated pages of the reference."""
    pages = {
        "api": api.page,
        "command-line": command_line,
        "configuration": configuration,
        "metrics": metrics,
        "errors": errors,
    }
    for name, page in pages.items():
        put(folder / f"{name}.md", "\n\n".join(page()) + "\n")


def command_line() -> Iterator[str]:
    yield "# Command line"
    yield COMMAND_LINE
    for name in COMMANDS:
        yield f"## apiece {name}"
        yield literal(helped(name))


def helped(*command: str) -> str:
    """What a command prints for --help, at a width that a page has."""
    printed = io.StringIO()
    with (
        patch.dict(os.environ, {"COLUMNS": "92", "NO_COLOR": "1", "TERM": "dumb"}),
        contextlib.redirect_stdout(printed),
    ):
        with contextlib.suppress(SystemExit):
            cli.main([*command, "--help"])
    return printed.getvalue().strip()


def configuration() -> Iterator[str]:
    said, kinds, usual = about(), get_type_hints(Config), Config()
    yield "# Configuration"
    yield CONFIGURATION
    yield console(
        "apiece run --rounds 2 --clients 5 --out runs/one",
        "apiece run --config runs/one/run.toml --rounds 3 --out runs/two",
    )
    for title, names in GROUPS.items():
        of = {n: (_code(_choices(api.typed(kinds[n]))), f"`{getattr(usual, n)!r}`") for n in names.split()}
        rows = [(f"`{n}`", *cells, escaped(said[n])) for n, cells in of.items()]
        yield f"## {title.replace('_', ' ').capitalize()}"
        yield table(("setting", "type", "default", "meaning"), rows)


def _choices(kind: str) -> str:
    """A type with the words that a setting may have, instead of the type that lists them."""
    return re.sub(r"Literal\[(.*?)\]", lambda found: found[1].replace(", ", " | "), kind)


def metrics() -> Iterator[str]:
    yield "# Metrics"
    yield METRICS
    sections: dict[str, list[Number]] = {}
    for number in numbers((Measure("accuracy", unit="%"),)):
        if not number.sum_of:
            sections.setdefault(number.section, []).append(number)
    for title, of in sections.items():
        rows = [
            (f"`{number.key}`", escaped(f"{number.caption[0].upper()}{number.caption[1:]}."), _unit(number))
            for number in of
        ]
        yield f"## {title}"
        yield table(("key", "meaning", "unit"), rows)
    yield "## Other keys"
    yield METRICS_MORE


def _unit(number: Number) -> str:
    """The unit in which the log has a number."""
    names = {"%": "share", "s": "seconds", "": "number"}
    sent = number.key.partition("_")[0]
    return "bytes" if sent == "bytes" else names.get(number.unit, number.unit)


def errors() -> Iterator[str]:
    yield "# Errors"
    yield SAID
    for title, places in ERRORS.items():
        yield f"## {title}"
        for place in places.split():
            files = sorted((SOURCE / place).rglob("*.py")) if (SOURCE / place).is_dir() else [SOURCE / place]
            found = {text: None for file in files for text in sentences(file.read_text())}
            if found:
                yield f"### `{place}`\n\n" + "\n".join(f"- {escaped(text)}" for text in found)


def sentences(source: str) -> Iterator[str]:
    """The texts of a file's errors, in their order."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "UserError" and node.args:
            if text := _template(node.args[0]):
                yield text


def _template(node: ast.expr) -> str:
    """A text with {name} for what is filled in; "" for what is no text."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return f"{{{_named(node.value)}}}"
    return ""


def _named(node: ast.expr) -> str:
    """A word for a value that is filled in: the name from which it is computed."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return _named(value) if name.startswith("_") else name
        case ast.Call(args=[first, *_]):
            return _named(first)
        case ast.Call(func=ast.Attribute(value=value)) | ast.Subscript(value=value) | ast.Starred(value=value):
            return _named(value)
        case ast.GeneratorExp(generators=[of]) | ast.ListComp(generators=[of]):
            return _named(of.iter)
        case ast.BinOp(left=value) | ast.IfExp(body=value):
            return _named(value)
    return "..."


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")
