"""What the site reads off the code: a page for every algorithm, whose command runs, and the pages of the reference."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields

import pytest
from support import ROOT
from support.outer import cli

import apiece
from apiece.commands import COMMANDS
from apiece.config.settings import Config
from apiece.language.algorithms import NAMED


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from making import algorithms

    return algorithms


@pytest.fixture
def reference(making, tmp_path):
    """The pages by name, those that are written by hand too."""
    from making import reference

    reference.write(tmp_path)
    paths = [*tmp_path.iterdir(), ROOT / "docs" / "reference" / "run-folder.md"]
    return {path.stem: path.read_text() for path in paths}


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
def test_the_command_of_a_page_runs(making, name, no_report):
    words = shlex.split(making.command(name))
    ended = cli(*words[1:])
    assert words[0] == "apiece" and ended.code == 0, ended.err


def test_the_reference_has_every_name_command_and_setting(reference):
    assert {*apiece.__all__} - {"__version__"} <= {*re.findall(r"^### (\w+)$", reference["api"], re.M)}
    assert {*COMMANDS} == {*re.findall(r"^## apiece ([\w-]+)$", reference["command-line"], re.M)}
    assert reference["command-line"].count("usage: apiece") == len(COMMANDS)
    assert all(f"| `{field.name}` |" in reference["configuration"] for field in fields(Config))
    assert "| `global_accuracy` |" in reference["metrics"] and "step size" in reference["api"]


def test_errors_are_read_off_the_code(reference, making):
    from making.reference import sentences

    assert "is no run folder" in reference["errors"]
    source = "raise UserError(f'{name!r}: {self._x} of {len(rows)}, {a.b} or {many[0]}.')"
    assert [*sentences(source)] == ["{name}: {self} of {rows}, {b} or {many}."]


@pytest.mark.slow
@pytest.mark.parametrize("page", ["configuration", "run-folder"])
def test_what_stands_in_the_reference_runs(reference, page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind, block in re.findall(r"```(console|python)\n(.*?)```", reference[page], re.S):
        if kind == "python":
            exec(compile(block, page, "exec"), {"__name__": "__main__"})
        for command in re.findall(r"^\$ apiece (.*)$", block, re.M) if kind == "console" else ():
            ended = cli(*shlex.split(command))
            assert ended.code == 0, ended.err
