"""An algorithm is short, and no logic is written twice: what is counted here are the files themselves."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "driftless"
LONG = {  # what else is the algorithm's
    "fedcog": ("pieces/fedcog.py", "pieces/generation.py"),
    "pefll": ("pefll.py",),
}
SHORT = sorted(
    str(path.relative_to(SOURCE))
    for path in [*(SOURCE / "pieces").glob("[!_]*.py"), SOURCE / "pfedhn.py"]
    if path.stem not in ("fedcog", "generation")
)


def code_lines(text: str) -> int:
    """Lines that are neither blank, nor comments, nor of a docstring."""
    said: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            said |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate((line.strip() for line in text.splitlines()), start=1)
    return sum(bool(line) and not line.startswith("#") and number not in said for number, line in lines)


def test_what_is_counted():
    said, code = (
        '"""Said\n\nhere."""\n\n# none\n\n',
        'x = 1  # one\nclass A:\n    {}\n    def f(self):\n        return """a\nb"""\n',
    )
    assert code_lines(said + code.format('"""Said."""\n')) == 5 == code_lines(code.format(""))


@pytest.mark.parametrize("name", SHORT)
def test_an_algorithm_costs_at_most_sixty_lines(name):
    assert 7 <= code_lines((SOURCE / name).read_text()) <= 60


@pytest.mark.parametrize("name", LONG)
def test_the_two_long_ones_cost_at_most_two_hundred(name):
    assert 60 < sum(code_lines((SOURCE / part).read_text()) for part in LONG[name]) <= 200


def finds(*paths: Path) -> subprocess.CompletedProcess[str]:
    """The duplicate finder as `make lint` runs it."""
    words = [sys.executable, "-m", "pylint", "--rcfile", str(ROOT / "pyproject.toml"), *map(str, paths)]
    return subprocess.run(words, capture_output=True, text=True)


def test_no_logic_is_written_twice():
    ended = finds(SOURCE)
    assert ended.returncode == 0, ended.stdout + ended.stderr


SAME = """
    velocity = 0.0
    for batch in batches:
        g = gradient(theta, batch)  {}
        {}
        velocity = momentum * velocity + g
        theta = theta - lr * velocity
    total = total + theta
"""
ONE = f'def one(theta, batches):\n    """The first."""{SAME.format("", "# said")}    return theta\n'
TWO = f'import math\n\n\ndef two(batches, theta, at=math.e):\n    """It."""\n{SAME.format("# why", "")}    return at\n'
OTHER = TWO.replace("velocity = 0.0", "velocity = 1.0").replace("total + theta", "total - theta")


@pytest.mark.parametrize(("other", "found"), [(TWO, True), (OTHER, False)], ids=["the same six lines", "five of six"])
def test_the_finder_finds_six_lines_whatever_stands_around_them(tmp_path, other, found):
    (tmp_path / "one.py").write_text(ONE)
    (tmp_path / "two.py").write_text(other)
    ended = finds(tmp_path / "one.py", tmp_path / "two.py")
    assert bool(ended.returncode) is found and ("duplicate-code" in ended.stdout) is found, ended.stdout
