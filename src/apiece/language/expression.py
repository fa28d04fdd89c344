"""Expressions such as `scaffold + relaxed_init(0.1)`: terms are matched with functions by name, never evaluated.

grammar.py has the grammar. The functions, or classes, are those of a mapping by name, or a module's public functions;
dash and underscore are alike, and arguments are checked against the signature. A bare name is text where the annotation
admits text or anything, else a term without arguments; an annotation that is `Annotated` with functions has its terms
among these.
"""

from __future__ import annotations

import inspect
import os
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from apiece.errors import UserError, nearest
from apiece.language.grammar import Call, error, parse, written
from apiece.language.names import Names

Functions = Mapping[str, Callable[..., Any]]


class Entry(NamedTuple):
    """One line of a listing: a function's name, its arguments with their defaults, the first paragraph of its
    docstring, and the settings that `papers.paper` notes on it.
    """

    name: str
    signature: str
    line: str
    paper_defaults: Mapping[str, Any] = types.MappingProxyType({})


def build(text: str, source: types.ModuleType | Functions) -> list[Any]:
    """The values that the source's functions return for the terms of an expression, in order.

    Nested terms are built from the same source. Arguments are checked against the annotations: numbers, truth values,
    text, None, Literal, lists, unions and classes. UserError names the culprit, its place and what is allowed.
    """
    known = _by_name(source)
    return [_built(call, known) for call in parse(text)]


def check_names(calls: Iterable[Call], source: types.ModuleType | Functions) -> None:
    """Raise UserError where the source has no function of a term's name, or the function does not take the term's
    arguments; no function is called.
    """
    known = _by_name(source)
    for call in calls:
        _bound(call, _taken(call, known, _reader(known)))


def as_plugin(text: str) -> str:
    """How to take an algorithm from the file that stands in the place of its name; "" if this is no file."""
    if not re.fullmatch(r"[^\s+,()]+\.py", text) and not os.path.isfile(text):
        return ""
    return f"{text} is a file: give it with --plugin {text}, and name one of its functions with --algorithm."


def catalog(source: types.ModuleType | Functions) -> list[Entry]:
    """An entry for every name that an expression can use; the entry of a refused name has the reason for its line."""
    known = _by_name(source)
    return [_entry(name, known) for name in known]


def functions(module: types.ModuleType) -> dict[str, Callable[..., Any]]:
    """A module's own public functions by name, in the order of their definitions."""
    return {
        name: thing
        for name, thing in vars(module).items()
        if inspect.isfunction(thing) and thing.__module__ == module.__name__ and not name.startswith("_")
    }


class Misfit(Exception):
    """The value is not of the annotated type."""


class _Unresolved:
    """Stands for an annotation that a module imports for type checkers only: no number, truth value or text."""


def _by_name(source: types.ModuleType | Functions) -> Functions:
    return functions(source) if isinstance(source, types.ModuleType) else source


def _reader(known: Functions) -> Callable[[str], Callable[..., Any]]:
    """Finds a function that is not to be called; imports nothing where the function's file is known."""
    return known.read if isinstance(known, Names) else known.__getitem__


def _entry(name: str, known: Functions) -> Entry:
    try:
        function = _reader(known)(name)
    except UserError as problem:
        return Entry(name, "", f"refused: {problem}")
    first = (inspect.getdoc(function) or "").partition("\n\n")[0]
    return Entry(name, _signature(function), " ".join(first.split()), getattr(function, "paper_defaults", {}))


def _signature(function: Callable[..., Any]) -> str:
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parts = []
    for parameter in inspect.signature(function).parameters.values():
        default = "" if parameter.default is parameter.empty else f"={written(parameter.default)}"
        parts.append(f"{marks.get(parameter.kind, '')}{parameter.name}{default}")
    return f"({', '.join(parts)})"


def _built(call: Call, known: Functions) -> Any:
    function = _taken(call, known, known.__getitem__)
    bound = _bound(call, function)
    for name, value in bound.arguments.items():
        parameter = bound.signature.parameters[name]
        kind = _annotation(function, parameter)
        if parameter.kind is parameter.VAR_POSITIONAL:
            bound.arguments[name] = tuple(_checked(item, kind, name, call, known) for item in value)
        elif parameter.kind is parameter.VAR_KEYWORD:
            bound.arguments[name] = {key: _checked(item, kind, key, call, known) for key, item in value.items()}
        else:
            bound.arguments[name] = _checked(value, kind, name, call, known)
    try:
        return function(*bound.args, **bound.kwargs)
    except UserError as problem:
        told = str(problem)
        raise error(call.at, told if told.startswith(call.name) else f"{call}: {told}") from problem


def _taken(call: Call, known: Functions, take: Callable[[str], Callable[..., Any]]) -> Callable[..., Any]:
    name = call.name.replace("-", "_")
    if name not in known:
        listed = known.listed if isinstance(known, Names) else ""
        if listed and (plugin := as_plugin(call.name)):
            raise error(call.at, plugin)
        raise error(call.at, f"unknown name {call.name!r}; {nearest(call.name, known, listed)}")
    try:
        return take(name)
    except UserError as problem:
        raise error(call.at, str(problem)) from problem


def _bound(call: Call, function: Callable[..., Any]) -> inspect.BoundArguments:
    signature = inspect.signature(function)
    parameters = signature.parameters.values()
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    keywords = {}
    for key, value in call.keywords:
        name = key if key in named else key.replace("-", "_")
        if name not in named and not any(p.kind is p.VAR_KEYWORD for p in parameters):
            allowed = nearest(key, named) if named else "it takes no named arguments."
            raise error(call.at, f"{call.name} has no argument {key!r}; {allowed}")
        keywords[name if name in named else key] = value
    try:
        return signature.bind(*call.arguments, **keywords)
    except TypeError as problem:
        raise error(call.at, f"{call}: {problem}; write {call.name}{_signature(function)}") from None


def _annotation(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    kind = Any if parameter.annotation is parameter.empty else parameter.annotation
    holder = types.SimpleNamespace(__annotations__={"kind": kind})
    made = function.__init__ if inspect.isclass(function) else function
    try:
        return typing.get_type_hints(holder, inspect.unwrap(made).__globals__, include_extras=True)["kind"]
    except NameError:
        return _Unresolved


def _checked(value: Any, kind: Any, name: str, call: Call, known: Functions) -> Any:
    try:
        return fit(value, kind, known)
    except Misfit:
        raise error(call.at, f"{call.name}'s {name} must be {_described(kind)}, not {written(value)}") from None


def fit(value: Any, kind: Any, known: Functions = types.MappingProxyType({})) -> Any:
    """The value in the annotation's type, or Misfit: whole numbers widen to floats, names and terms are built."""
    origin, options = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return fit(value, options[0], options[1] if isinstance(options[1], Mapping) else known)
    if origin in (typing.Union, types.UnionType):
        return value if type(value) in options else _first_fit(value, options, known)
    if origin is typing.Literal and any(type(value) is type(option) and value == option for option in options):
        return value
    if kind is float and type(value) is int:
        return float(value)
    if kind is int and type(value) is int and abs(value) >= 2**63:
        raise UserError(f"{value} is too large for a whole number; give one below 2^63.")
    if kind in (int, float, bool, str, types.NoneType) or origin is typing.Literal:
        if type(value) is not kind:
            raise Misfit
        return value
    if isinstance(value, tuple):
        return _list(value, kind, origin, options, known)
    if isinstance(value, Call):
        return _built(value, known)
    if kind in (Any, object):
        return value
    if isinstance(value, str) and value.replace("-", "_") in known:
        return _built(Call(value), known)
    if kind is _Unresolved:
        return value
    raise Misfit


def _first_fit(value: Any, options: tuple[Any, ...], known: Functions) -> Any:
    for option in options:
        try:
            return fit(value, option, known)
        except Misfit:
            continue
    raise Misfit


def _list(value: tuple[Any, ...], kind: Any, origin: Any, options: tuple[Any, ...], known: Functions) -> Any:
    container = origin or kind
    if container in (Any, object, _Unresolved):
        return tuple(fit(item, container, known) for item in value)
    if container not in (list, tuple, Sequence):
        raise Misfit
    fixed = container is tuple and options and options[-1] is not Ellipsis
    kinds = options if fixed else (options[0] if options else Any,) * len(value)
    if len(kinds) != len(value):
        raise Misfit
    items = (fit(item, item_kind, known) for item, item_kind in zip(value, kinds, strict=True))
    return list(items) if container is list else tuple(items)


def _described(kind: Any) -> str:
    plain = {int: "a whole number", float: "a number", bool: "true or false", str: "text", types.NoneType: "none"}
    origin, options = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return " or ".join(options[1]) if isinstance(options[1], Mapping) else _described(options[0])
    if kind in plain:
        return plain[kind]
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_described(option) for option in options)
    if origin is typing.Literal:
        return f"one of {', '.join(written(option) for option in options)}"
    if (origin or kind) in (list, tuple, Sequence):
        return f"a list [{', '.join('...' if option is ... else _described(option) for option in options)}]"
    return f"a term that makes a {getattr(kind, '__name__', kind)}"
