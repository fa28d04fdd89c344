"""Calls of a module at vectors: in copies of the module, parts of the vectors replace parameters and buffers."""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from apiece.errors import UserError
from apiece.system.typed import map_tree
from apiece.vector.groups import BATCH_NORMS
from apiece.vector.layout import Entry, channels_last, views
from apiece.vector.watched import ChangesInputs, Watched, memory, uncompiled

MODES = ("train", "evaluate")
PARAMETERS = (
    "the model changes its parameters as it is called, which a training step alone may do: let it compute with a "
    "constrained copy of them, as torch.nn.utils.parametrize makes it."
)
CONSTANT = (
    "the model changes {!r} as it is called, which is a constant here, as all whole numbers and what is frozen are: "
    "make it a floating-point buffer, which clients average, or leave that out."
)


class Calls:
    """A module whose `parameters` lie in one vector and whose `buffers` lie in another; `last` names its last layer.

    Only copies of the module are called. Another process may receive the object, and makes its own copies.
    """

    def __init__(
        self,
        module: nn.Module,
        parameters: list[Entry],
        buffers: list[Entry],
        last: str,
        at_rest: list[str],
        dtype: torch.dtype,
        autocast: torch.dtype | None,
    ) -> None:
        # its tensors are the module's: a call has a vector's in their place
        fixed = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in module.parameters() if p.requires_grad}
        self.module = copy.deepcopy(module, {id(p): p for p in module.parameters()} | fixed)
        self.parameters, self.buffers, self.last, self.at_rest = parameters, buffers, last, at_rest
        self.dtype, self.autocast = dtype, autocast
        self._copies_inputs = False
        self._sizes = [e.size for e in parameters]
        self._local = threading.local()

    def copying(self) -> Calls:
        """The same calls, each with a copy of its inputs."""
        made = copy.copy(self)
        made._copies_inputs = True
        return made

    def outputs(self, mode: str, theta: Tensor, x: Any, buffers: Tensor) -> tuple[Any, Tensor]:
        """The outputs for x in this mode, "train" or "evaluate", and the buffers [B] after the pass."""
        self._copies()["features"].clear()
        module = self.placed(mode, theta, buffers)
        if self._copies_inputs:
            x = map_tree(_copied, x)
        if self.autocast is None:
            out = _called(module, x)
        else:
            with torch.autocast(theta.device.type, self.autocast):
                out = map_tree(self._widened, _called(module, x))
        if not self.buffers:
            return out, buffers
        moved = [owner._buffers[key] for slots in self._copies()["buffers", mode] for owner, key in slots[:1]]
        return out, torch.cat([channels_last(buffer).reshape(-1) for buffer in moved])

    def _widened(self, leaf: Any) -> Any:
        return leaf.to(self.dtype) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf

    def features(self) -> Tensor:
        """The last layer's input in the last pass in evaluation mode; it can be taken once. UserError where the layer
        was not called.
        """
        if not (seen := self._copies()["features"]):
            raise UserError(
                f"the inputs of the model's last layer with weights, {self.last!r}, cannot be taken, as the model does "
                "not call it (nn.MultiheadAttention uses its weights alone): end with a layer that it calls, as "
                "nn.Linear, or take an algorithm that needs no features."
            )
        return seen.pop()

    @contextmanager
    def watched(self, theta: Tensor, x: Any) -> Generator[None]:
        """A context of calls at theta for x; UserError where one changes theta or a constant of the module, and
        ChangesInputs where it changes x.
        """
        copies = self._copies()
        moving = {name for e in (*self.parameters, *self.buffers) for name in e.aliases}
        constants = [(m, n, t.detach()) for m in MODES for n, t in _tensors(copies[m]) if n not in moving]
        leaves = [leaf for leaf in tree_leaves(x) if isinstance(leaf, Tensor)]
        named = [(tensor, UserError(CONSTANT.format(name))) for _, name, tensor in constants]
        given = [(leaf, ChangesInputs("the model changes its inputs in place.")) for leaf in leaves]
        with uncompiled(), Watched([*named, *given, (theta, UserError(PARAMETERS))]):
            yield
        for owner, key in (slot for mode in MODES for slots in copies["parameters", mode] for slot in slots):
            placed = owner._parameters.get(key)  # recurrent layers gather theirs on a GPU
            if not isinstance(owner, nn.RNNBase) and (placed is None or memory(placed) != memory(theta)):
                raise UserError(PARAMETERS)
        for mode, name, before in constants:
            now = dict(_tensors(copies[mode])).get(name)
            if now is not None and now.shape == before.shape and not torch.equal(now, before):
                raise UserError(CONSTANT.format(name))

    def placed(self, mode: str, theta: Tensor, buffers: Tensor) -> nn.Module:
        """This thread's copy of the module with its parameters and buffers replaced by parts of the vectors."""
        copies = self._copies()
        for slots, view in zip(copies["parameters", mode], views(theta, self.parameters, self._sizes), strict=True):
            for owner, key in slots:
                owner._parameters[key] = view
        if self.buffers:
            for slots, view in zip(copies["buffers", mode], views(buffers, self.buffers), strict=True):
                fresh = view.clone()
                for owner, key in slots:
                    owner._buffers[key] = fresh
        return copies[mode]

    def _copies(self) -> dict[Any, Any]:
        """One copy of the module for each thread and mode: a call replaces the parameters of its copy.

        New copies share the module's tensors: a thread's first call may be inside a transform, where none can be made.
        """
        if not hasattr(self._local, "copies"):
            copies: dict[Any, Any] = {"features": []}
            tensors = {id(t): t for t in (*self.module.parameters(), *self.module.buffers())}
            for mode in MODES:
                module = copy.deepcopy(self.module, dict(tensors)).train(mode == "train")
                for name in self.at_rest:
                    module.get_submodule(name).eval()
                _stop_counting(module)
                copies[mode] = module
                for kind, entries in (("parameters", self.parameters), ("buffers", self.buffers)):
                    copies[kind, mode] = [[_slot(module, name) for name in e.aliases] for e in entries]
            keep = copies["features"]

            def look(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
                keep.extend([*args, *named.values()][:1])

            copies["evaluate"].get_submodule(self.last).register_forward_pre_hook(look, with_kwargs=True)
            self._local.copies = copies
        return self._local.copies

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_local"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._local = threading.local()


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf


def _called(module: nn.Module, x: Any) -> Any:
    """The module's outputs for a tensor x, for named inputs (a dict) or for several in order (a tuple); of named
    outputs those that are tensors, and no cache of keys and values.
    """
    out = module(x) if isinstance(x, Tensor) else _called_with(module, x)
    if not isinstance(out, dict):
        return out
    named = cast("dict[str, Any]", out)
    kept = {name: part for name, part in named.items() if all(isinstance(leaf, Tensor) for leaf in tree_leaves(part))}
    return named if len(kept) == len(named) else type(named)(**kept)


def _called_with(module: nn.Module, x: Any) -> Any:
    named, ordered = cast("tuple[dict[str, Any], tuple[Any, ...]]", (x, ()) if isinstance(x, dict) else ({}, tuple(x)))
    try:
        inspect.signature(module.forward).bind(*ordered, **named)
    except TypeError:  # it takes the tree as its one argument
        return module(x)
    return module(*ordered, **named)


def _slot(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, key = name.rpartition(".")
    return module.get_submodule(path), key


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _stop_counting(module: nn.Module) -> None:
    """Stop BatchNorm's count of batches, which a call would change in place. Statistics with a momentum do not read it;
    those without one are refused (`Space`).
    """
    for part in module.modules():
        if isinstance(part, BATCH_NORMS):
            part.num_batches_tracked = None
