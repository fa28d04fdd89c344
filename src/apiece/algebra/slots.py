"""Names that are nearly a slot's: a method that nothing calls leaves federated averaging as it is, without a word."""

from __future__ import annotations

from difflib import get_close_matches

from apiece.algebra.piece import Piece
from apiece.algebra.returned import SLOTS

KNOWN = [name for name in vars(Piece) if not name.startswith("_")]  # what a piece may define, slots among it


def filled(piece: Piece) -> list[str]:
    """The slots that a piece fills."""
    return [slot for slot in SLOTS if piece.fills(slot)]


def uncalled(piece: Piece) -> list[str]:
    """The methods of a piece's own that are no slots: nothing calls them, unless its slots do."""
    own = {name for kind in type(piece).__mro__ if kind not in Piece.__mro__ for name in vars(kind)}
    others = sorted(name for name in own.difference(KNOWN) if not name.startswith("_"))
    return [name for name in others if callable(getattr(piece, name))]


def misspelled(piece: Piece) -> str:
    """A sentence on a method whose name is nearly a slot's, or on methods of which none is a slot; "" otherwise."""
    kind, methods = type(piece).__name__, uncalled(piece)
    for name in methods:
        swapped = [known for known in KNOWN if sorted(known) == sorted(name)]
        if near := swapped or get_close_matches(name, KNOWN, n=1, cutoff=0.85):
            return (
                f"{kind}.{name} is no slot, and nothing calls it; did you mean {near[0]!r}? Give it that name, or one "
                "that begins with _."
            )
    if methods and not filled(piece):
        return f"{kind} fills no slot, so nothing calls its {', '.join(methods)}: name one of {', '.join(SLOTS)}."
    return ""
