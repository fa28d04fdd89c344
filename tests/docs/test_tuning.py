"""The page on searches does what it says: its commands and its Python, one after the other."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from support import ROOT
from support.outer import cli

from apiece.search.rungs import Budget

PAGE = (ROOT / "docs" / "howto" / "tune.md").read_text()


@pytest.mark.slow
def test_its_blocks_run(tmp_path, monkeypatch, no_report):
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    for kind, block in re.findall(r"```(bash|python)\n(.*?)```", PAGE, re.S):
        if kind == "python":
            exec(compile(block, "tune.md", "exec"), {"__name__": "__main__"})
            continue
        for line in block.splitlines():
            ended = cli(*shlex.split(line)[1:])
            assert ended.code == 0, (line, ended.err)
    left = {path.name for path in Path("runs/tune").iterdir() if path.is_file()}
    assert left == {"tune.md", "tune.png", "tune.json", "trials.jsonl", "best.toml"}
    assert Path("runs/both/best-scaffold.toml").is_file()


def test_its_rungs_are_those_of_a_search():
    rungs = Budget(50).rungs(20, 3)
    said = (
        "With 20 trials and 50 rounds, all {1} run for {0} rounds, the best {3} of them go on to {2}, and the best {5} "
        "of these to {4}."
    )
    assert said.format(*(number for rung in rungs for number in rung)) in PAGE
