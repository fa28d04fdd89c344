"""A default stands in one place: a named function takes those of the dataclasses that it makes."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from apiece.algebra.optim import Sgd
from apiece.config.names import SOURCES
from apiece.language import algorithms
from apiece.language.names import Names

TABLES = [algorithms.NAMED, *(source for source in SOURCES.values() if isinstance(source, Names))]
FUNCTIONS = {table.places[name]: table[name] for table in TABLES for name in table if inspect.isfunction(table[name])}
OTHERS = {("pfedhn", "momentum")}  # the clients' momentum, where that of the dataclass is the server's


def repeated(function: Callable[..., Any]) -> set[str]:
    """The parameters with a literal for a default that a dataclass which the function names has too."""
    node = ast.parse(inspect.getsource(function)).body[0]
    assert isinstance(node, ast.FunctionDef)
    literal = {
        argument.arg
        for argument, default in zip(node.args.args[::-1], node.args.defaults[::-1])
        if isinstance(default, ast.Constant) and default.value is not None
    }
    used = [function.__globals__.get(part.id) for part in ast.walk(node) if isinstance(part, ast.Name)]
    said = {
        (f.name, repr(f.default))
        for kind in used
        if isinstance(kind, type) and is_dataclass(kind)
        for f in fields(kind)
    }
    given = inspect.signature(function).parameters
    return {name for name in literal if (name, repr(given[name].default)) in said}


def test_a_default_stands_in_one_place():
    for place, function in FUNCTIONS.items():
        assert repeated(function) <= {name for owner, name in OTHERS if owner == function.__name__}, place


def test_what_is_repeated_is_found():
    assert repeated(twice) == {"momentum"}


def twice(momentum: float = 0.0, decay: float = Sgd.weight_decay, other: float = 1.0) -> Sgd:
    return Sgd(momentum, decay)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: next(iter(table)))
def test_what_is_read_is_what_is_imported(table):
    """Names, defaults and docstrings; of a class the arguments that make it."""
    for name, real in table.items():
        light, signature = table.read(name), inspect.signature(real)
        assert light is not real and inspect.getdoc(light) == inspect.getdoc(real)
        assert getattr(light, "paper_defaults", None) == getattr(real, "paper_defaults", None)
        found = inspect.signature(light).parameters.values()
        assert [(p.name, p.kind, repr(p.default)) for p in found] == [
            (p.name, p.kind, repr(p.default)) for p in signature.parameters.values()
        ]
