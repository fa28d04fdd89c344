"""What a named algorithm's paper runs it with, said once and beside the algorithm. Nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import fill, indent
from typing import Any, TypeVar

Constructor = TypeVar("Constructor", bound=Callable[..., Any])


def paper(source: str, **settings: Any) -> Callable[[Constructor], Constructor]:
    """Note on an algorithm's function which settings of a run (`weighting`, `optimizer`, ...) its paper has, and where.

    They become its `paper_defaults`, which `apiece algorithms --json` lists, and the last sentence of its docstring.
    They are the paper's alone: a run has its own.
    """

    def noted(function: Constructor) -> Constructor:
        settled = ", ".join(f"{name}={value}" for name, value in settings.items())
        said = indent(fill(f"The paper's settings, by {source}: {settled}.", 116), "    ")
        function.paper_defaults = {**settings, "source": source}  # type: ignore[attr-defined]
        function.__doc__ = f"{(function.__doc__ or '').rstrip()}\n\n{said}\n    "
        return function

    return noted
