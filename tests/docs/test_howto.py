"""The pages docs/howto/figures.md and docs/howto/terminal.md: their commands and Python run in their order."""

from __future__ import annotations

import json
import re
import shlex
from inspect import signature
from pathlib import Path

import pytest
from matplotlib import pyplot
from support import ROOT
from support.outer import cli

from apiece import Piece
from apiece.algebra.returned import SLOTS

PAGES = {  # and the files that each leaves
    "figures": {"accuracy.pdf", "loss.png", "both.pdf"},
    "terminal": {"log.txt", "rounds.jsonl", "table.json", "grid.json", "cards.json", "algorithms.json", "data.json"},
}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    text = (ROOT / "docs" / "howto" / f"{page}.md").read_text()
    blocks = re.findall(r"```(bash|python)\n(.*?)```", text, re.S)
    assert {kind for kind, _ in blocks} >= {"bash"}
    for kind, block in blocks:
        if kind == "python":
            exec(compile(block, page, "exec"), {"__name__": "__main__"})
        for line in block.splitlines() if kind == "bash" else ():
            command, _, file = line.partition(" > ")
            ended = cli(*words(command))
            assert ended.code == 0, (line, ended.err)
            if file:
                Path(file).write_text(ended.out)
            if file.endswith("json"):
                assert json.loads(ended.out)
    for shown in re.findall(r"```text\n(.*?)```", text, re.S):  # what the page says that a file begins with
        assert lasting(Path("log.txt").read_text()).startswith(lasting(shown))
    pyplot.close("all")
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == PAGES[page]


def lasting(log: str) -> str:
    """A run's lines without what differs by machine: the time that is left, and the clients in a call."""
    return re.sub(r", [\d:]+ left|Vectorized\(\d+, \d+\)", "", log)


def words(line: str) -> list[str]:
    """A line's words after `apiece`, with `runs/*` replaced as a shell does."""
    first, *rest = shlex.split(line)
    assert first == "apiece", line
    return [w for word in rest for w in (sorted(map(str, Path().glob(word))) if word.endswith("/*") else [word])]


def test_each_exit_code_of_the_help_is_on_the_page() -> None:
    page = (ROOT / "docs" / "reference" / "exit-codes.md").read_text()
    said = " ".join(cli("--help").out.split()).partition("Exit codes: ")[2].partition("╭")[0]
    codes = set(re.findall(r"\b(?!128)\d+\b", said))
    assert codes == {"0", "1", "2", "130", "141", "143"} and all(f"| {code} |" in page for code in codes)


def test_the_table_of_slots_has_every_slot_as_it_is_called() -> None:
    page = (ROOT / "docs" / "howto" / "new-algorithm.md").read_text()
    rows = re.findall(r"^\| `(\w+)\(([\w, ]*)\)` \|", page.partition("## The slots")[2], re.M)
    found = {name: called.split(", ") for name, called in rows}
    assert found == {slot: list(signature(vars(Piece)[slot]).parameters)[1:] for slot in SLOTS}
