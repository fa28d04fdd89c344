"""The page of the public names: signatures with types, what stands in the docstrings, and what a value offers."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any, ForwardRef

from making.markdown import described, escaped, table

import apiece

GROUPS = {
    "Run": "federate Config Result Round early_stopping keep_best client_metrics figure tune UserError",
    "Data": "load Dataset make_split Split Federation MadeFederation",
    "Models, losses and metrics": "Space Task Metric",
    "Sums": "algorithm combine Algorithm Period NEVER StepSize Alternate Cohort Phase Client Server Sgd Descent",
    "Write a piece": "Piece View Message Uniform Weighted Sum PerClient Draw check",
    "What the server sends": "Identity Pipeline Frozen OnServer FederationFacts",
    "Round by round, by hand": "Setup Federated Clients Work Between Plan Sequential global_model execute",
}
VALUES = {"NEVER": "The period of parameters that are never synchronized, infinity: `Period('head', NEVER)`."}


def page() -> Iterator[str]:
    yield "# Python"
    yield (
        "Every public name, as `apiece.NAME`; importing the package loads none of them before it is used. The named "
        "algorithms stand in `apiece.language.algorithms` and have [pages of their own](../algorithms/index.md)."
    )
    for title, names in GROUPS.items():
        yield f"## {title}"
        for name in names.split():
            yield f"### {name}"
            yield from [VALUES[name]] if name in VALUES else _thing(name, getattr(apiece, name))


def _thing(name: str, thing: Any) -> Iterator[str]:
    if name == "Config":
        yield "Its fields are the settings of the [configuration](configuration.md)."
    elif not (isinstance(thing, type) and issubclass(thing, Exception)):
        yield _python(_signature(name, thing))
    yield from described(map(_with_imports, paragraphs(thing)))
    if not isinstance(thing, type):
        return
    fields = re.findall(r"^    (\w+): [^\n]*?  # ([^\n]+)$", inspect.getsource(thing), re.M)
    if fields:
        yield table(("field", "meaning"), [(f"`{field}`", escaped(meaning)) for field, meaning in fields])
    for method, function in vars(thing).items():
        function = function.fget if isinstance(function, property) else getattr(function, "__func__", function)
        if method != "neutral" and not method.startswith("_") and inspect.isfunction(function) and function.__doc__:
            call = isinstance(vars(thing)[method], property)
            yield f"#### {name}.{method}"
            yield _python(f"{name}.{method}" if call else _signature(f"{name}.{method}", function, own=True))
            yield from described(paragraphs(function))


def paragraphs(thing: Any) -> list[str]:
    """A docstring's paragraphs."""
    return (inspect.getdoc(thing) or "").split("\n\n")


def _with_imports(text: str) -> str:
    """An example with an import of the public names that it uses: its own module, where it is tested, has some."""
    imported = {
        name for names in re.findall(r"^>>> from apiece import (.*)$", text, re.M) for name in names.split(", ")
    }
    used = {word for line in text.splitlines() if line[:4] in (">>> ", "... ") for word in re.findall(r"\w+", line)}
    missing = sorted((used & {*apiece.__all__}) - imported)
    if not text.startswith(">>>") or not missing:
        return text
    rest = [line for line in text.splitlines() if not line.startswith(">>> from apiece import ")]
    return "\n".join([f">>> from apiece import {', '.join(sorted({*missing, *imported}))}", *rest])


def _python(text: str) -> str:
    return f"```python\n{text}\n```"


def _signature(name: str, thing: Any, own: bool = False) -> str:
    """A call with types and defaults, an argument a line where it is long; `own`: the first argument is the value."""
    signature = inspect.signature(thing)
    given, star = [], False
    for parameter in list(signature.parameters.values())[1 if own else 0 :]:
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            given, star = [*given, "*"], True
        star = star or parameter.kind is parameter.VAR_POSITIONAL
        given.append(_parameter(parameter))
    back = signature.return_annotation
    result = "" if isinstance(thing, type) or back is signature.empty else f" -> {typed(back)}"
    short = f"{name}({', '.join(given)}){result}"
    lines = textwrap.indent(",\n".join(given), "    ")
    return short if len(short) <= 88 else f"{name}(\n{lines},\n){result}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    kind = "" if parameter.annotation is parameter.empty else f": {typed(parameter.annotation)}"
    default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
    return f"{stars}{parameter.name}{kind}{default}"


def _default(value: Any) -> str:
    text = re.sub(r"<function (?:\w+\.)*(\w+) at 0x\w+>", r"\1", repr(value))
    return text if len(text) <= 60 else "..."


def typed(annotation: Any) -> str:
    """A type as the code has it."""
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, type):
        return annotation.__name__ if not getattr(annotation, "__args__", None) else str(annotation)
    return str(annotation).replace("typing.", "").replace("NoneType", "None")
