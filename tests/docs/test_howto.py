"""The pages docs/howto/figures.md and docs/howto/terminal.md: their commands and Python run in their order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from matplotlib import pyplot
from support import ROOT
from support.outer import cli

PAGES = {"figures": {"accuracy.pdf", "loss.png", "both.pdf"}}  # and the files that each leaves


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
            ended = cli(*words(line))
            assert ended.code == 0, (line, ended.err)
    pyplot.close("all")
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == PAGES[page]


def words(line: str) -> list[str]:
    """A line's words after `apiece`, with `runs/*` replaced as a shell does."""
    first, *rest = shlex.split(line)
    assert first == "apiece", line
    return [w for word in rest for w in (sorted(map(str, Path().glob(word))) if word.endswith("/*") else [word])]
