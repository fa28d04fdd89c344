"""An algorithm is short, and no logic is written twice: what is counted here are the files themselves."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "apiece"
BESIDE = {"pfedhn": ("experiment/descriptors.py",)}  # what is no piece, and is one algorithm's alone
LIMITS = dict.fromkeys(("fedcog", "pefll"), 200)
WITH = {  # what costs more than sixty lines with all that nobody else uses: how many, and what that is
    "fedgen": (151, "a generator and its training, the server's own: a second learner beside the clients'"),
    "vhl": (
        94,
        "a contrast, and a classifier with more rows than the model's, which is built before there is a vector",
    ),
    "pfedhn": (80, "a program by which a client never seen learns its descriptor"),
}


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


def imported(tree: ast.AST) -> set[str]:
    """The files of pieces that this text names."""
    named = {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.rpartition(".")[2] for name in named if name.startswith("apiece.pieces.")}


def costs() -> dict[str, tuple[str, ...]]:
    """The files of every algorithm that has one: those of its name, and what only it uses, itself or through others."""
    files = {path.stem: imported(ast.parse(path.read_text())) for path in (SOURCE / "pieces").glob("[!_]*.py")}
    named = ast.parse((SOURCE / "language" / "algorithms.py").read_text()).body
    users: dict[str, set[str]] = {part: set() for part in files}
    for function in (node for node in named if isinstance(node, ast.FunctionDef)):
        ahead = [*imported(function)]
        while ahead:
            part = ahead.pop()
            ahead += files[part] if function.name not in users[part] else ()
            users[part].add(function.name)
    assert all(users.values()), "a file of pieces that no algorithm uses"
    found: dict[str, tuple[str, ...]] = dict(BESIDE)
    for part, who in sorted(users.items()):
        owner = part if part in who else next(iter(who)) if len(who) == 1 else ""
        if owner:
            found[owner] = (*found.get(owner, ()), f"pieces/{part}.py")
    return found


def test_whose_files_are_whose():
    found = costs()
    assert found["fedcog"] == ("pieces/fedcog.py", "pieces/generation.py")
    assert found["fedgen"] == ("pieces/feature_generator.py", "pieces/fedgen.py", "pieces/generator_training.py")
    assert found["vhl"] == ("pieces/contrast.py", "pieces/vhl.py", "pieces/wider_head.py")
    assert found["scaffold"] == ("pieces/first_gradients.py", "pieces/scaffold.py")
    assert found["pfedhn"] == (*BESIDE["pfedhn"], "pieces/pfedhn.py")
    assert "samples" not in str(found) and found["fine_tune"] == ("pieces/fine_tune.py",)  # several use both


@pytest.mark.parametrize("name, files", costs().items(), ids=costs())
def test_an_algorithm_costs_at_most_sixty_lines(name, files):
    """And at least seven; two are allowed two hundred. Where it takes more with what only it uses, that is named."""
    limit = LIMITS.get(name, 60)
    own, *others = (
        code_lines((SOURCE / file).read_text()) for file in sorted(files, key=lambda f: name + ".py" not in f)
    )
    assert 7 <= own <= limit and all(lines <= 60 for lines in others)
    assert (own + sum(others) > limit) == (name in WITH)
    assert own + sum(others) <= WITH.get(name, (limit, ""))[0]


def finds(*paths: Path) -> subprocess.CompletedProcess[str]:
    """The duplicate finder as `make lint` runs it."""
    words = [sys.executable, "-m", "pylint", "--rcfile", str(ROOT / "pyproject.toml"), *map(str, paths)]
    return subprocess.run(words, capture_output=True, text=True)


@pytest.mark.slow
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
