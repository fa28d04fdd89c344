"""The cards by name: the file papers/fedals/table2.py is the card `fedals-table2`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from apiece.errors import UserError, nearest
from apiece.report.text import order_of
from apiece.reproduce.card import Card


def names() -> list[str]:
    """All names, paper by paper."""
    found = (Path(__file__).parents[1] / "papers").glob("*/[a-z]*.py")
    return sorted((f"{path.parent.name}-{path.stem}" for path in found), key=order_of)


def card(name: str) -> Card:
    """The card of that name; UserError if there is none."""
    if name not in names():
        raise UserError(f"there is no card {name!r}; {nearest(name, names())}")
    return import_module("apiece.papers." + name.replace("-", ".")).CARD


def file(name: str, out: Path, ending: str) -> Path:
    """A file of a card's results: OUT/fedals/table2.ENDING."""
    paper, _, item = name.partition("-")
    return out / paper / f"{item}{ending}"
