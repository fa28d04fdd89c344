"""What a piece logs of a round, held against what a line of metrics.jsonl can say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from apiece.algebra.piece import Piece
from apiece.errors import UserError


def numbers(piece: Piece, logged: Mapping[str, Any]) -> dict[str, float]:
    """The numbers that a piece logs, each under the piece's name. Raises UserError for what is no single number."""
    for name, value in logged.items():
        if not (value.dim() == 0 if isinstance(value, Tensor) else isinstance(value, int | float)):
            raise UserError(
                f"{piece.stream}.log gives {name!r} as a {type(value).__name__}, which is no single number: give a "
                "number, or a tensor of shape []."
            )
    return {f"{piece.stream}.{name}": float(value) for name, value in logged.items()}
