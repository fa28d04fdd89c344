"""Every algorithm says its equation, what it stores and sends, and how an unseen client is served."""

from __future__ import annotations

import inspect
import re
from typing import Any

from support.contract import every_piece

import apiece
from apiece.algebra import server_optim
from apiece.algebra.broadcast import Identity
from apiece.algebra.composition import Algorithm, Alternate, Period, StepSize
from apiece.language import algorithms as named
from apiece.pieces.pefll import Pefll
from apiece.pieces.pfedhn import Pfedhn

EQUATION = r"<-| = "
SAID = {"stored": r"\bStored\b[^.:]*:", "sent": r"\b[Ss]ent\b[^.:]*:", "unseen": r"nseen client|never seen|seen or not"}
OWN = [kind for kind in vars(server_optim).values() if getattr(kind, "__module__", "") == server_optim.__name__]
SERVERS = [kind for kind in OWN if hasattr(kind, "neutral") and kind.__name__[0] != "_"]
PARTS = [*every_piece(), *SERVERS, Period, StepSize, Alternate, Pefll, Pfedhn]


def lacking(text: str, more: str = "") -> list[str]:
    """What a docstring leaves out; `more` is that of the classes that its own goes on from."""
    found, said = [] if re.search(EQUATION, text) else ["equation"], " ".join(f"{text} {more}".split())
    return found + [what for what, pattern in SAID.items() if not re.search(pattern, said)]


def lacking_of(kind: type) -> list[str]:
    bases = [base.__doc__ or "" for base in kind.__mro__[1:-1] if base.__module__ == kind.__module__]
    return lacking(kind.__doc__ or "", " ".join(bases))


def kinds(subject: Algorithm) -> list[type]:
    """The pieces, the server's optimizer and the generator, which can speak for an algorithm."""
    parts: list[Any] = [*subject.pieces, *([subject.server] if subject.server is not None else [])]
    return [type(part) for part in parts] + [type(subject.broadcast)] * (subject.broadcast != Identity())


def test_server_optimizers_are_found():
    assert {"Descent", "Momentum", "AveragedMomentum", "NormalizedMomentum", "Nesterov", "Adam", "Yogi", "Adagrad"} == {
        kind.__name__ for kind in SERVERS
    }


def test_every_part_says_it():
    assert not {kind.__name__: left for kind in PARTS if (left := lacking_of(kind))}


def test_every_named_algorithm_says_it():
    """In its own docstring, or its piece does: one that is made of periods has no piece to say it."""
    for name in named.NAMED:
        make = getattr(named, name)
        speak = [] if make().periods else kinds(make())
        assert not lacking(inspect.getdoc(make) or "") or any(not lacking_of(kind) for kind in speak), name


def test_what_is_left_out_is_told():
    assert lacking("Averaging.") == ["equation", "stored", "sent", "unseen"]
    assert lacking("w <- mean w_i. Stored and sent: nothing.") == ["unseen"]
    assert lacking("Stored: w = 1. A client never seen: w.") == ["sent"]


def test_every_public_name_has_an_example():
    names = [name for name in apiece.__all__ if callable(getattr(apiece, name))]
    assert len(names) > 40 and not [name for name in names if ">>> " not in (getattr(apiece, name).__doc__ or "")]
