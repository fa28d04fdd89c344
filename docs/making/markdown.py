"""Docstrings and rows as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

MARKS = re.compile(r"([*_<>\[\]$|\\])")
EQUATION = re.compile(r"<-|^\S+ = .*[()]|;   ")
UNSEEN = r"\bAn unseen client (?!whose)"
COST = re.compile(rf"(?=\bStored(?: and sent)?[^.:]{{0,40}}: |\bSent(?: up| down)?[^.:]{{0,40}}: |{UNSEEN})")


def put(path: Path, text: str) -> None:
    """Write the text unless it stands there already: a page that did not change is not built again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def escaped(text: str) -> str:
    """A paragraph in which nothing is Markdown but what stands between backticks."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else MARKS.sub(r"\\\1", part) for part in parts)


def console(*commands: str) -> str:
    """Commands of a terminal."""
    return "```console\n" + "\n".join(f"$ {command}" for command in commands) + "\n```"


def literal(text: str) -> str:
    """Lines as they are, such as those of an equation."""
    return f"```text\n{text}\n```"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of cells that are Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def described(paragraphs: Iterable[str]) -> Iterator[str]:
    """A docstring's paragraphs: an equation as it stands, and what is stored, sent and served apart from the rest."""
    for text in paragraphs:
        if text.startswith(">>>"):
            yield f"```pycon\n{text}\n```"
        elif text.startswith("Args:"):
            arguments = re.findall(r"^    (\w[\w, ]*): (.*(?:\n        .*)*)", text, re.M)
            yield "\n".join(f"- `{name}`: {escaped(meaning)}" for name, meaning in arguments)
        elif text.startswith("    "):
            yield literal("\n".join(line.removeprefix("    ") for line in text.splitlines()))
        elif text.lstrip().startswith("- "):
            yield "\n".join(f"- {escaped(item)}" for item in re.split(r"(?:^|\n)\s*- ", text)[1:])
        elif EQUATION.search(text) and len(text.splitlines()) <= 7 and "tored" not in text:
            yield literal(text)
        else:
            first, *costs = COST.split(text)
            yield from filter(None, (escaped(first), "\n".join(f"- {escaped(cost)}" for cost in costs)))
