"""What is wrong with a command line, in one sentence: tyro, which parses it, says so in a box."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, redirect_stderr

from apiece.errors import UserError, nearest


@contextmanager
def sentences(words: list[str], commands: Collection[str]) -> Iterator[None]:
    """Raise UserError for what tyro refuses in this context, and for a command that is none."""
    if words and not words[0].startswith("-") and words[0] not in commands:
        raise UserError(f"unknown command {words[0]!r}; {nearest(words[0], commands)}")
    box = io.StringIO()
    try:
        with redirect_stderr(box):
            yield
    except SystemExit as ended:
        if ended.code == 2:
            raise UserError(sentence(box.getvalue(), words, commands)) from None
        raise
    sys.stderr.write(box.getvalue())


def sentence(box: str, words: list[str], commands: Collection[str]) -> str:
    """The first part of the box, what the flag takes or which one was meant, and where all are listed.

    >>> box = " Value error\\n ----\\n Error parsing --lr: no float\\n ----\\n Argument helptext:\\n --lr FLOAT"
    >>> sentence(box, ["run", "--lr", "x"], ["run"])
    '--lr: no float; it takes --lr FLOAT. `apiece run --help` has all flags.'
    """
    parts: list[list[str]] = [[]]
    for line in (line.strip("│ ") for line in box.splitlines() if line[:1] not in "╭╰"):
        parts = [*parts, []] if line and set(line) <= set("─-") else [*parts[:-1], [*parts[-1], line]]
    parts = parts if "╭" in box else parts[1:]  # without a border, the title is a part of its own
    first, more = " ".join(parts[0]), next((part[1:] for part in parts[1:] if len(part) > 1), [])
    said = first.removeprefix("Error parsing ").rstrip(".:")
    if first.startswith("Missing from "):
        lacking = [line.split()[0] for line in parts[0] if re.match(r"--[a-z-]+( |$)|[A-Z]+$", line)]
        what = "what it is" if len(lacking) == 1 else "what they are"
        return f"`apiece {words[0]}` needs {' and '.join(lacking)}. `apiece {words[0]} --help` says {what}."
    if (misplaced := first.removeprefix("Unrecognized or misplaced options: ")) != first:
        option, folder = misplaced.split()[0], next((word for word in words[1:] if not word.startswith("-")), "RUN")
        another = f"`apiece run --config {folder}/run.toml {option} ...` with a new --out"
        kept = f": a run keeps its settings, and {another} begins another" if words[:1] == ["resume"] else ""
        return f"`apiece {words[0]}` takes no {option}{kept}. `apiece {words[0]} --help` has all flags."
    if (stray := first.removeprefix("Unrecognized options: ")) != first and not stray.startswith("-"):
        example = ', as in --algorithm "scaffold + relaxed_init(0.1)"' if words[0] == "run" else ""
        stray = " ".join(stray.split(", "))
        said = f"nothing takes {stray!r}: a value stands behind its flag, and in quotes if it has spaces{example}"
        said += ", and several seeds are --seeds 0,1,2" if "--seed" in words else ""
    if first.startswith("Error parsing") and more:
        said += f"; it takes {more[0]}"
    elif more and parts[1][0].startswith("Perhaps"):
        said += f"; did you mean {more[0].split()[0].rstrip(',')}?"
    command = f"{words[0]} " if words[:1] and words[0] in commands else ""
    return f"{said}{'' if said.endswith('?') else '.'} `apiece {command}--help` has all flags."
