"""Names that are nearly a slot's: a method that nothing calls leaves federated averaging as it is, without a word."""

from __future__ import annotations

from difflib import get_close_matches

from apiece.algebra.piece import Piece


def misspelled(piece: Piece) -> str:
    """A sentence on a method whose name is nearly a slot's; "" if there is none."""
    slots = [name for name in vars(Piece) if not name.startswith("_")]
    own = {name for kind in type(piece).__mro__ if kind not in Piece.__mro__ for name in vars(kind)}
    for name in sorted(name for name in own.difference(slots) if not name.startswith("_")):
        if callable(getattr(piece, name)) and (near := get_close_matches(name, slots, n=1, cutoff=0.85)):
            return f"{type(piece).__name__}.{name} is no slot, and nothing calls it; did you mean {near[0]!r}?"
    return ""
