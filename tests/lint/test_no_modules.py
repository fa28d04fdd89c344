"""Pieces work on vectors: none of them holds, makes or calls an `nn.Module`, which is read in their own text."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from apiece import pieces

FILES = sorted(Path(pieces.__path__[0]).glob("[!_]*.py"))
GENERATOR = "FedGen's generator is a network of the server's own, told as a vector: it has no place in the View"
EXCEPTIONS = {
    "feature_generator.py": GENERATOR,
    "generator_training.py": GENERATOR,
    "fedgen.py": GENERATOR,
    "pefll.py": "its two networks are made from descriptors and samples, not from the clients' model",
    "wider_head.py": "what VHL's `prepare` makes of the module, before there is a vector",
}
# what leads to a module from a View, from a piece, or by itself
REACHES = {"module", "modules", "get_submodule", "forward", "functional_call", "space", "network"}


def touches(text: str) -> list[str]:
    """Every use of torch.nn, its functions excepted, and every way to a module, outside `prepare`, by its line."""
    found = []

    def look(node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef) and node.name == "prepare":
            return
        if isinstance(node, ast.ImportFrom) and node.module == "torch.nn":
            found.extend(f"{node.lineno}: {name.name}" for name in node.names if name.name != "functional")
        if isinstance(node, ast.Attribute) and not _functional(node):
            of_torch = ast.unparse(node.value) in ("nn", "torch.nn")
            if of_torch or node.attr in REACHES:
                found.append(f"{node.lineno}: {ast.unparse(node)}")
        if isinstance(node, ast.Name) and node.id in REACHES - {"space", "module"}:  # as arguments they are handed in
            found.append(f"{node.lineno}: {node.id}")
        for child in ast.iter_child_nodes(node):
            look(child)

    look(ast.parse(text))
    return found


def _functional(node: ast.Attribute) -> bool:
    return node.attr == "functional" or ast.unparse(node.value).endswith("nn.functional")


def test_no_piece_touches_a_module():
    for path in FILES:
        assert bool(touches(path.read_text())) is (path.name in EXCEPTIONS), (path.name, touches(path.read_text()))


@pytest.mark.parametrize(
    "line, found",
    [
        ("class Net(nn.Module): ...", ["1: nn.Module"]),
        ("from torch.nn import Linear", ["1: Linear"]),
        ("layer = torch.nn.Linear(2, 3)", ["1: torch.nn.Linear"]),
        ("def objective(self, view, loss):\n    view.task.task.space.module(x)", ["2: view.task.task.space.module",
                                                                                  "2: view.task.task.space"]),
        ("y = functional_call(net, state, x)", ["1: functional_call"]),
        ("def prepare(self, module: nn.Module) -> nn.Module:\n    return nn.Sequential(module)", []),
        ("import torch.nn.functional as F\nfrom torch import nn\nF.relu(x) + torch.nn.functional.relu(x)", []),
        ("def draws(self, space):\n    return (Draw('noise', (space.size,)),)", []),
    ],
)  # fmt: skip
def test_what_is_a_touch(line, found):
    assert touches(line) == found
