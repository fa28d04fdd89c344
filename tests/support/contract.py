"""Every piece that there is, and the same with less work of its own."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import fields, replace

from apiece import pieces
from apiece.algebra.piece import Piece


def every_piece() -> list[type[Piece]]:
    """All pieces in `apiece.pieces`, by walking it: nobody registers one."""
    modules = [importlib.import_module(m.name) for m in pkgutil.walk_packages(pieces.__path__, "apiece.pieces.")]
    return [
        v
        for m in modules
        for v in vars(m).values()
        if isinstance(v, type) and issubclass(v, Piece) and v is not Piece and v.__module__ == m.__name__
    ]


BRIEF = {"steps": 3, "samples": 12, "epochs": 1}  # what a piece may do at length by itself, and how much is enough


def brief(piece: Piece) -> Piece:
    """The piece with less work of its own."""
    counts = {f.name: getattr(piece, f.name) for f in fields(piece) if f.name in BRIEF}
    return replace(piece, **{name: min(BRIEF[name], n) for name, n in counts.items() if isinstance(n, int)})
