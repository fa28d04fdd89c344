"""Selecting parameters: the head, the body, normalization layers, leading layers, a fragment of the layers, adapters,
or a pattern of names.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from torch import nn

from apiece.errors import UserError
from apiece.vector.layout import Entry, by_layer, entries_of, layers_of, owner

Selector = str | int | Callable[[str], bool] | None
EVERYTHING = "*"  # the pattern that every parameter matches
BATCH_NORMS = nn.modules.batchnorm._NormBase  # pyright: ignore[reportPrivateUsage]
LORA_A, LORA_B = ("lora_A", "lora_embedding_A"), ("lora_B", "lora_embedding_B")  # as peft names them
LORA = {"lora_A": LORA_A, "lora_B": LORA_B, "lora": LORA_A + LORA_B}
FRAGMENT = re.compile(r"(sequential|strided) (\d+)/(\d+)")
NORMS = (BATCH_NORMS, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)  # the first includes InstanceNorm


def is_frozen_batch_norm(part: nn.Module) -> bool:
    """Whether a part is a BatchNorm with weights, of which none is trained."""
    own = list(part.parameters())
    return isinstance(part, BATCH_NORMS) and bool(own) and not any(p.requires_grad for p in own)


class Names(NamedTuple):
    """A model's parameters, and the names by which groups of them are selected."""

    parameters: list[Entry]
    layers: list[str]  # of the groups of layers, in order: each starts at a weight matrix or kernel (FedALS's groups),
    # or where a name matches one of the patterns in the module's own `layer_starts`
    last: str  # the last layer with weights
    norms: frozenset[str]  # the normalization layers


def names_of(module: nn.Module) -> Names:
    """What a module trains, by name."""
    trained = by_layer((n, p) for n, p in module.named_parameters(remove_duplicate=False) if p.requires_grad)
    entries = entries_of(trained, layers_of(trained, getattr(module, "layer_starts", None)))
    layers: dict[int, str] = {e.layer: owner(e.aliases[-1]) or e.name for e in reversed(entries)}
    last = owner(([n for n, p in trained if p.dim() > 1] or [n for n, _ in trained] or [""])[-1])
    norms = frozenset(name for name, part in parts_of(module) if isinstance(part, NORMS))
    return Names(entries, [layers[k] for k in sorted(layers)], last, norms)


def parts_of(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The module and all modules in it, by name."""
    yield from module.named_modules()  # pyright: ignore[reportUnknownMemberType]


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
    if isinstance(which, str) and (found := FRAGMENT.fullmatch(which)):
        return _fragment(found[1], int(found[2]), int(found[3]), model)
    return _by_name(which if callable(which) else lambda name: _matches(name, str(which)), which, model)


def _fragment(order: str, number: int, of: int, model: Names) -> Callable[[Entry], bool]:
    """Fragment `number` = 1, ..., `of` of the groups of layers: neighbors, or every `of`-th one."""
    layers = len(model.layers)
    if not 1 <= number <= of <= layers:
        raise UserError(
            f"'{order} {number}/{of}' is no fragment: the model has {layers} groups of layers, "
            f"{', '.join(model.layers)}; give 1 to {layers} fragments, and number them from 1."
        )
    return lambda e: number - 1 == (e.layer % of if order == "strided" else e.layer * of // layers)


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
    if not any(map(matches, names)) and isinstance(which, str) and set(which.split("|")) <= set(LORA):
        raise UserError(
            f"the model has no adapter: nothing that it trains is {which!r}, but {', '.join(names)}; give a model with "
            "LoRA adapters, as peft makes it, or say by a pattern which parameters are meant."
        )
    if not any(map(matches, names)):
        raise UserError(f"the pattern {which!r} matches no parameter; there are {', '.join(names)}.")
    return lambda e: any(map(matches, e.aliases))


def _matches(name: str, pattern: str) -> bool:
    return any(
        fnmatch.fnmatchcase(name, p) or name.startswith(p + ".") or not set(LORA.get(p, ())).isdisjoint(name.split("."))
        for p in pattern.split("|")
    )
