"""Constructors by name, such as `scaffold`: to use one is to import its module, torch included.

Listing and checking must take no seconds and only read the module's text: `ast` finds a definition, `exec` runs it
without its body. A table of signatures would repeat the defaults, which stand in the pieces alone (`Proximal.mu`).
"""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

Constructor = Callable[..., Any]
LIGHT = ("dataclasses", "apiece.algebra.papers")  # modules that an outline imports


class Names(Mapping[str, Constructor]):
    """Constructors by name: imported from a place (`apiece.pieces.scaffold.scaffold`), or made or refused by `made`.
    `listed` says where all are listed, to whoever names one that there is not.
    """

    def __init__(
        self,
        places: Mapping[str, str],
        made: Mapping[str, Callable[[], Constructor]] = MappingProxyType({}),
        listed: str = "",
    ):
        self.places, self.made, self.listed = places, made, listed

    def __getitem__(self, name: str) -> Constructor:
        return self._taken(name, lambda module, own: getattr(import_module(module), own))

    def read(self, name: str) -> Constructor:
        """A stand-in with the constructor's signature, docstring and paper's settings; no place is imported for it."""
        return self._taken(name, outline)

    def _taken(self, name: str, take: Callable[[str, str], Constructor]) -> Constructor:
        if name in self.made:
            return self.made[name]()
        module, _, own = self.places[name].rpartition(".")
        return take(module, own)

    def __contains__(self, name: object) -> bool:
        return name in self.made or name in self.places

    def __iter__(self) -> Iterator[str]:
        return iter({**self.places, **self.made})

    def __len__(self) -> int:
        return len({**self.places, **self.made})


@functools.cache
def outline(module: str, name: str) -> Any:
    """A module's name from its text alone: a function without its body, a class's fields, or a value; `object` if
    foreign.
    """
    node = _nodes(module).get(name)
    if node is None:
        return getattr(builtins, name)
    if isinstance(node, ast.ImportFrom):
        source = str(node.module)
        if source in LIGHT:
            return getattr(import_module(source), name)
        return outline(source, name) if source.startswith("apiece.") else object
    used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
    space = {"__name__": __name__} | {one: outline(module, one) for one in used}
    exec(compile(ast.fix_missing_locations(ast.Module([node], [])), module, "exec"), space)
    return space[name]


@functools.cache
def _nodes(module: str) -> dict[str, ast.stmt]:
    """A module's imports, values and outlined definitions, by the names that they define."""
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None, module
    found: dict[str, ast.stmt] = {}
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                found[node.name] = _outlined(node)
            case ast.ImportFrom():
                found |= {alias.name: node for alias in node.names}
            case ast.Assign(targets=[ast.Name() as target]):
                found[target.id] = node
    return found


def _outlined(node: ast.FunctionDef | ast.ClassDef) -> ast.stmt:
    """The definition without annotations, with its docstring and a class's fields as its only body."""
    fields = [part for part in node.body if isinstance(part, ast.AnnAssign) and isinstance(node, ast.ClassDef)]
    said = ast.Expr(ast.Constant(ast.get_docstring(node, clean=False) or ""))
    node.body = [said, *(field for field in fields if "ClassVar" not in ast.dump(field.annotation))]
    for part in ast.walk(node):
        if isinstance(part, ast.arg | ast.AnnAssign):
            part.annotation = ast.Constant("Any")
        elif isinstance(part, ast.FunctionDef):
            part.returns = None
    return node
