"""An algorithm is short, and no logic is written twice: what is counted here are the files themselves."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

from apiece.language.algorithms import NAMED

SOURCE = ROOT / "src" / "apiece"
PIECES = "apiece.pieces."
BESIDE = {"pfedhn": ("experiment/descriptors.py",)}  # what is no piece, and is one algorithm's alone
LIMIT, LIMITS = 55, {"fedcog": 165, "pefll": 96}  # without imports, and without the function that gives the name
WITH = {  # what costs more with all that nobody else uses: how many lines, and what that is
    "fedgen": (127, "a generator and its training, the server's own: a second learner beside the clients'"),
    "vhl": (
        80,
        "a contrast, and a classifier with more rows than the model's, which is built before there is a vector",
    ),
    "pfedhn": (57, "a program by which an unseen client learns its descriptor"),
}


def code_lines(text: str) -> int:
    """Lines that are neither blank, nor comments, nor imports, nor of a docstring, nor of a function that names an
    algorithm made of the rest.
    """
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            left_out |= lines_of(node.body[0])
        if isinstance(node, ast.ImportFrom) or (isinstance(node, ast.FunctionDef) and node.name in NAMED):
            left_out |= lines_of(node)
    lines = enumerate((line.strip() for line in text.splitlines()), start=1)
    return sum(bool(line) and not line.startswith("#") and number not in left_out for number, line in lines)


def lines_of(node: ast.stmt) -> set[int]:
    first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
    return set(range(first, (node.end_lineno or 0) + 1))


def test_what_is_counted():
    said, code, named = (
        '"""Said\n\nhere."""\n\n# none\n\nfrom os import (\n    path,\n)\n',
        'x = 1  # one\nclass A:\n    {}\n    def f(self):\n        return """a\nb"""\n',
        "@paper(\n    1\n)\ndef fedavg():\n    return A()\n",
    )
    assert code_lines(said + code.format('"""Said."""\n') + named) == 5 == code_lines(code.format(""))


def words(*nodes: ast.AST) -> set[str]:
    return {part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)} - set(NAMED)


def uses(module: str) -> dict[str, set[str]]:
    """The files of pieces that each algorithm named in this file uses, and under "" those that the rest of it does."""
    stem = module.rpartition(".")[2]
    nodes = ast.parse((SOURCE.parent / module.replace(".", "/")).with_suffix(".py").read_text()).body
    own = {node.name: node for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    rest = [node for name, node in own.items() if name not in NAMED]
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom) and str(node.module).startswith(PIECES)]
    homes = {name.name: str(node.module).rpartition(".")[2] for node in froms for name in node.names}
    homes |= dict.fromkeys(set(own) - set(NAMED), stem) if module.startswith(PIECES) else {}
    found = {name: {homes[word] for word in words(node) & set(homes)} for name, node in own.items() if name in NAMED}
    return found | {"": {homes[word] for word in words(*rest) & set(homes)} - {stem}}


def costs() -> dict[str, tuple[str, ...]]:
    """The files of every algorithm that has one: those of its name, and what only it uses, itself or through others."""
    files = {path.stem: uses(f"{PIECES}{path.stem}")[""] for path in (SOURCE / "pieces").glob("[!_]*.py")}
    users: dict[str, set[str]] = {part: set() for part in files}
    for name, place in NAMED.places.items():
        ahead = [*uses(place.rpartition(".")[0])[name]]
        while ahead:
            part = ahead.pop()
            ahead += files[part] if name not in users[part] else ()
            users[part].add(name)
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
def test_an_algorithm_costs_at_most_fifty_five_lines(name, files):
    """And at least seven; two are allowed more. Where it takes more with what only it uses, that is named."""
    limit = LIMITS.get(name, LIMIT)
    own, *others = (
        code_lines((SOURCE / file).read_text()) for file in sorted(files, key=lambda f: name + ".py" not in f)
    )
    assert 7 <= own <= limit and all(lines <= LIMIT for lines in others)
    assert (own + sum(others) > limit) == (name in WITH)
    assert own + sum(others) <= WITH.get(name, (limit, ""))[0]


def finds(*paths: Path) -> subprocess.CompletedProcess[str]:
    """The duplicate finder as `make lint` runs it."""
    words = [sys.executable, "-m", "pylint", "--rcfile", str(ROOT / "pyproject.toml"), *map(str, paths)]
    return subprocess.run(words, capture_output=True, text=True)


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
