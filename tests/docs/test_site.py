"""What the site reads off the code: a page for every algorithm, whose command runs."""

from __future__ import annotations

import shlex

import pytest
from support import ROOT
from support.outer import cli

from apiece.language.algorithms import NAMED


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from making import algorithms

    return algorithms


def test_every_algorithm_has_a_page_and_stands_in_one_group(making, tmp_path):
    making.write(tmp_path)
    grouped = [name for names in making.GROUPS.values() for name in names.split()]
    assert sorted(grouped) == sorted(NAMED) and {path.stem for path in tmp_path.iterdir()} == {*NAMED, "index"}
    for name in NAMED:
        page = (tmp_path / f"{name}.md").read_text()
        assert all(f"## {title}" in page for title in ("When to use it", "Run it", "Equation and source", "Measured"))
        assert "An unseen client" in page or "nseen" in page, name


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
def test_the_command_of_a_page_runs(making, name):
    words = shlex.split(making.command(name))
    ended = cli(*words[1:])
    assert words[0] == "apiece" and ended.code == 0, ended.err
