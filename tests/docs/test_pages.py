"""The pages that a stranger reads do what they say: each page's Python and commands run in their order, in one folder.

Numbers of rounds and steps are made small in commands. A block after `<!-- not run: why -->` is only read: its commands
must have flags that exist. docs/adding-a-piece.md has a test of its own (test_adding_a_piece.py).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from support import ROOT
from support.outer import cli, draw_no_page_of_one_run

from apiece import cli as command_line

HOWTO = """own-data own-model compare new-algorithm resume new-client adapters many-clients gpu several-machines
reproduce report consortium""".split()  # test_howto.py has the others
PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs" / name for name in ("start.md", "thirty-minutes.md", "why.md", "threat-model.md")),
    *(ROOT / "docs" / "howto" / f"{name}.md" for name in HOWTO),
    *sorted((ROOT / "docs" / "concepts").glob("*.md")),
]
FENCE = re.compile(r"(<!-- not run: .*? -->\n)?```(\w*)(?: (\S+))?\n(.*?)```", re.S)


class Block(NamedTuple):
    """What stands between two fences: a language, and the file as which a reader saves it."""

    runs: bool
    language: str
    file: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(not of[1], of[2], of[3] or "", of[4]) for of in FENCE.finditer(page.read_text())]


def commands(text: str) -> list[list[str]]:
    """The words of each command of a block, without comments; lines that end in a backslash go on."""
    lines = [shlex.split(line, comments=True) for line in text.replace("\\\n", " ").splitlines()]
    return [words for words in lines if words]


def small(words: list[str]) -> list[str]:
    """The same command with a tenth of its rounds, and two steps."""
    made = list(words)
    for flag, of in (("--rounds", lambda n: max(2, n // 10)), ("--steps", lambda n: 2)):
        if flag in made and made[made.index(flag) + 1].isdigit():
            made[made.index(flag) + 1] = str(of(int(made[made.index(flag) + 1])))
    return made


def expanded(word: str) -> list[str]:
    """What a shell makes of a pattern of files; any other word stays."""
    return [str(path) for path in sorted(Path().glob(word))] if word.startswith("runs/") and "*" in word else [word]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where the page's data lie: a client's digits, a table, texts."""
    x, y = np.random.default_rng(0).random((40, 8, 8), np.float32), np.arange(40) % 10
    np.savez(tmp_path / "new-client.npz", x_train=x[:30], y_train=y[:30], x_test=x[30:], y_test=y[30:])
    rows = [f"{i},{i % 7},{i % 2},{'ABCD'[i % 4]}" for i in range(200)]
    (tmp_path / "patients.csv").write_text("\n".join(["age,ward,ill,hospital", *rows]) + "\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")  # where the page is at that moment
    draw_no_page_of_one_run(monkeypatch)
    return tmp_path


def execute(block: Block, names: dict[str, object]) -> None:
    if block.file:
        Path(block.file).write_text(block.text)
    elif block.language == "python":
        exec(compile(block.text, "page", "exec"), names)
    elif block.language in ("", "bash", "console"):
        for words in commands(block.text):
            if words[0] == "apiece":
                ended = cli(*(there for word in small(words[1:]) for there in expanded(word)))
                assert ended.code == 0, f"{shlex.join(words)}: {ended.err}"
            elif words[0] == "cd" and Path(words[1]).is_dir():  # that `apiece new` made
                os.chdir(words[1])  # the fixture comes back
            else:
                assert words[0] in ("pip", "make", "source", "cd", "git", "torchrun"), words


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_runs_as_it_stands(page: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, names = set(sys.modules), {"__name__": "__main__"}
    for block in blocks(page):
        if block.runs:
            execute(block, names)
    for name in set(sys.modules) - before:
        if any(here.rglob(f"{name}.py")):  # a file of the page, which another page may have too
            del sys.modules[name]
    if page.name == "README.md":
        means = [int(found) for found in re.findall(r": (\d+)%", capsys.readouterr().out)]
        assert len(means) == 3 and min(means) > 50, means


@pytest.mark.slow
def test_the_first_command_ends_well_at_its_own_scale(here: Path) -> None:
    """Small commands would not show that a run of twenty rounds diverges."""
    (first,) = (words for block in blocks(PAGES[0]) for words in commands(block.text) if words[:2] == ["apiece", "run"])
    assert cli(*first[1:]).code == 0
    last = json.loads((here / "runs" / "first" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["global_accuracy"] > 0.8


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_is_not_run_has_flags_that_exist(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that need another machine are read up to where they would begin."""
    seen: list[object] = []
    monkeypatch.setattr(command_line, "_do", seen.append)
    count = 0
    for block in blocks(page):
        if not block.runs and block.language != "python":
            for words in commands(block.text):
                if "apiece" in words and words[0] not in ("pip", "useradd", "chown"):
                    ended = cli(*words[words.index("apiece") + 1 :])
                    assert ended.code == 0, f"{shlex.join(words)}: {ended.err}"
                    count += 1
    assert len(seen) == count


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for place in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in place:
            continue
        name, _, anchor = place.partition("#")
        there = page.parent / name if name else page
        assert there.exists(), place
        if anchor:
            headings = re.findall(r"^#+ (.*)$", there.read_text(), re.M)
            made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in made, place


def test_a_command_is_made_small():
    text = "apiece run --rounds 50 --steps 20 \\\n  --lr 0.1  # a comment\n\napiece data"
    run, data = commands(text)
    assert small(run) == ["apiece", "run", "--rounds", "5", "--steps", "2", "--lr", "0.1"]
    assert data == small(data) == ["apiece", "data"]
