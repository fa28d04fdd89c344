"""Tests stand where what they test stands, and import what they share from `support`, never from one another."""

from __future__ import annotations

import re

from support import ROOT, TESTS

BESIDE = {"docs", "lint", "oracles", "support"}


def test_folders_mirror_the_source():
    folders = {path.parent.name for path in TESTS.glob("*/*.py")}
    assert folders <= BESIDE | {path.name for path in (ROOT / "src" / "apiece").iterdir()}


def test_no_test_is_imported():
    imports = re.compile(r"^\s*(from|import) (test_|.*\.test_)", re.M)
    assert not [path.name for path in TESTS.rglob("*.py") if imports.search(path.read_text())]
