"""The page on trackers does what it says: its command, its Python, and the extras that it names."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from support import ROOT
from support.outer import cli

from apiece.config.names import SOURCES

PAGE = (ROOT / "docs" / "howto" / "track.md").read_text()


@pytest.mark.slow
def test_its_blocks_run(tmp_path, monkeypatch, no_report):
    monkeypatch.chdir(tmp_path)
    (command,), (python,) = re.findall(r"^apiece (.*)$", PAGE, re.M), re.findall(r"```python\n(.*?)```", PAGE, re.S)
    ended = cli(*shlex.split(command))
    assert ended.code == 0, ended.err
    exec(compile(python, "track.md", "exec"), {"__name__": "__main__"})
    lines = [len((Path("runs") / name / "metrics.csv").read_text().splitlines()) for name in ("tracked", "first")]
    assert lines == [6, 6]


def test_its_table_names_every_tracker_and_how_it_is_installed():
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", PAGE, re.M))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert rows.keys() == set(SOURCES["track"])
    assert all(
        said == "nothing" or (said == f'`pip install ".[{name}]"`' and name in extras) for name, said in rows.items()
    )
