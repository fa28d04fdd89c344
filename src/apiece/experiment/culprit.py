"""Whose code raised an error in a vectorized round: a program's piece, or its model or loss."""

from __future__ import annotations

from inspect import unwrap
from traceback import walk_tb
from types import FunctionType

from apiece.algebra.piece import Piece
from apiece.config.assemble import Experiment
from apiece.vector.metrics import LOSSES


def culprit(experiment: Experiment, error: Exception) -> str:
    """The source of an error in a vectorized round: a program's last piece in its traceback, else the model or loss."""
    setup = experiment.federated.setup
    who = "the model" if setup.task.loss in LOSSES else "the model or the loss"
    for frame, line in walk_tb(error.__traceback__):
        code = frame.f_code
        for piece in setup.own_pieces:
            if code.co_qualname.startswith(f"{type(piece).__qualname__}.") and code.co_filename == _file(piece):
                who = f"the piece {piece!r} (line {line} of {code.co_filename})"
    return who


def _file(piece: Piece) -> str:
    """The file that a piece's class was written in, as its code names it."""
    functions = [unwrap(thing) for thing in vars(type(piece)).values() if isinstance(thing, FunctionType)]
    files = (one.__code__.co_filename for one in functions if one.__module__ == type(piece).__module__)
    return next((file for file in files if file != "<string>"), "")
