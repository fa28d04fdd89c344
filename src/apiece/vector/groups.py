"""Selecting parameters: the head, the body, normalization layers, leading layers, or a pattern of names."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import NamedTuple

from torch import nn

from apiece.errors import UserError
from apiece.vector.layout import Entry, owner

Selector = str | int | Callable[[str], bool] | None
EVERYTHING = "*"  # the pattern that every parameter matches
BATCH_NORMS = nn.modules.batchnorm._NormBase  # pyright: ignore[reportPrivateUsage]
NORMS = (BATCH_NORMS, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)  # the first includes InstanceNorm


def is_frozen_batch_norm(part: nn.Module) -> bool:
    """Whether a part is a BatchNorm with weights, of which none is trained."""
    own = list(part.parameters())
    return isinstance(part, BATCH_NORMS) and bool(own) and not any(p.requires_grad for p in own)


class Names(NamedTuple):
    """A model's parameters, and the names by which groups of them are selected."""

    parameters: list[Entry]
    layers: list[str]  # of the groups of layers, in order
    last: str  # the last layer with weights
    norms: frozenset[str]  # the normalization layers


def chooser(which: Selector, model: Names) -> Callable[[Entry], bool]:
    """A test whether a parameter is selected, as `Space.select` explains; UserError where none is, with all names."""
    if which is None or which == "head":
        return lambda e: any(owner(name) == model.last for name in e.aliases)
    if which == "body":
        return _rest("head", which, model)
    if which == "norm":
        return _by_name(lambda name: owner(name) in model.norms, "norm", model)
    if isinstance(which, int):
        count = len(model.layers)
        if not 0 <= which <= count:
            raise UserError(
                f"{which} leading layers were asked for, but the model has {count}: {', '.join(model.layers)}."
            )
        return lambda e: e.layer < which
    if isinstance(which, str) and which.startswith("!"):
        return _rest(which[1:], which, model)
    return _by_name(which if callable(which) else lambda name: _matches(name, str(which)), which, model)


def _rest(without: Selector, which: Selector, model: Names) -> Callable[[Entry], bool]:
    inside = chooser(without, model)
    if all(map(inside, model.parameters)):
        names = ", ".join(e.name for e in model.parameters)
        raise UserError(
            f"{which!r} means no parameter: all that the model trains, {names}, is {without!r}; unfreeze "
            "another layer, or name the parameters by a pattern."
        )
    return lambda e: not inside(e)


def _by_name(matches: Callable[[str], bool], which: Selector, model: Names) -> Callable[[Entry], bool]:
    names = [name for e in model.parameters for name in e.aliases]
    if not any(map(matches, names)):
        raise UserError(f"the pattern {which!r} matches no parameter; there are {', '.join(names)}.")
    return lambda e: any(map(matches, e.aliases))


def _matches(name: str, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(name, p) or name.startswith(p + ".") for p in pattern.split("|"))
