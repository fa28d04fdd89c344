"""The Python of the README and of the docs runs as it stands there (docs/adding-a-piece.md: test_adding_a_piece.py)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import ROOT

LONG = ("README.md", 1)  # a comparison on the bundled data
BLOCKS = [
    pytest.param(page.name, block, id=f"{page.name}-{i}", marks=pytest.mark.slow if (page.name, i) == LONG else ())
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    if page.name != "adding-a-piece.md"
    for i, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))
]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_runs_as_it_stands(page: str, block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, page, "exec"), {"__name__": "__main__"})


def test_the_readme_has_both_of_its_snippets() -> None:
    assert sum("README.md" in of.values for of in BLOCKS) == 2
