"""Calls that are recorded once for inputs of a shape and then run on others: what compiled code and CUDA graphs share.

A recording knows its inputs' shapes and not their values. So calls are filled up to full size with clients whose
replies are dropped, steps are masked, and round and step size go in as tensors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from apiece.engine.stepping import Batched, Begun
from apiece.lifts.lift import Rewritten, mapped, padded, replies, stacked
from apiece.system.device import Crossing, scalar


class Flat(NamedTuple):
    """A tree taken apart: its tensors, all its leaves with `Tensor` for each tensor, and its structure."""

    tensors: Sequence[Tensor]
    rest: tuple
    form: Any

    @classmethod
    def of(cls, tree: Any) -> Flat:
        leaves, form = tree_flatten(tree)
        rest = tuple(Tensor if isinstance(leaf, Tensor) else leaf for leaf in leaves)
        return cls([leaf for leaf in leaves if isinstance(leaf, Tensor)], rest, form)

    def whole(self, tensors: Sequence[Tensor]) -> Any:
        """The tree with these tensors in place of its own."""
        tensor = iter(tensors)
        return tree_unflatten([next(tensor) if leaf is Tensor else leaf for leaf in self.rest], self.form)

    @property
    def shape(self) -> Any:
        """What a recording depends on: everything but the tensors' values."""
        return self.rest, self.form, tuple(map(layout, self.tensors))


class Recorded(Rewritten):
    """`chunk` clients in one recorded call; calls run in parallel threads. `record` makes the program of a call.

    An operation that cannot be recorded is vectorized as it is. `told` gets a sentence for whatever is not recorded.
    """

    def __init__(self, chunk: int = 32, workers: int = 1):
        super().__init__(chunk, workers)
        self.programs: dict[Any, Callable[[Sequence[Tensor]], Any]] = {}  # of an operation on inputs of a shape
        self.refused: set[Callable] = set()  # operations that cannot be recorded
        self.asked: dict[Callable, set[int]] = {}  # rounds that an operation asks about

    def record(
        self, operation: Callable, stepping: Batched, inputs: Flat, made: Any
    ) -> Callable[[Sequence[Tensor]], Any]:
        """A program that does for any tensors of these shapes what the operation does for these inputs, of which it
        `made` its result just now; may raise anything.
        """
        raise NotImplementedError

    def few(self, operation: Callable, shared: Any, clients: list[Any]) -> Crossing:
        """As it is: so few are not worth a program of their own."""
        with _GATE.many():
            return super().together(operation, shared, clients)

    def together(self, operation: Callable, shared: Any, clients: list[Any]) -> Crossing:
        if operation in self.refused:
            return self.few(operation, shared, clients)
        begun = Begun(shared.round, self.asked.setdefault(operation, set()))
        inputs, device = self._inputs(shared, clients), shared.buffers.device
        stepping = replace(Batched.of(clients), begun=begun)
        key = lambda: (operation, stepping, inputs.shape, begun.answers)  # a first call may ask more
        if key() not in self.programs:
            with _GATE.alone():
                if key() not in self.programs:
                    made = self.call(mapped(operation, stepping, self.chunk), *inputs.whole(inputs.tensors))
                    try:  # what is made once was made just now and is not recorded
                        program = self.record(operation, stepping, inputs, made)
                    except torch.OutOfMemoryError:
                        raise
                    except Exception as error:  # the call itself has just succeeded
                        self.refuse(operation, error)
                        return _first(replies(made, self.chunk, device), len(clients))
                    self.programs[key()] = program
        with _GATE.many():
            return _first(replies(self.programs[key()](inputs.tensors), self.chunk, device), len(clients))

    def smaller(self, chunk: int) -> None:
        self.programs.clear()  # what they hold is memory that smaller calls need
        super().smaller(chunk)

    def refuse(self, operation: Callable, error: Exception) -> None:
        """Map the operation as it is from now on, and say why."""
        reason = str(error).partition(" - ")[0]
        self.told(f"{operation.__name__!r} cannot be recorded, so it is mapped as it is: {reason}")
        self.refused.add(operation)

    def _inputs(self, shared: Any, clients: list[Any]) -> Flat:
        """The inputs of a full call, with round and step size as tensors and sample numbers rounded up, so that shapes
        are few.
        """
        full, like = clients + clients[-1:] * (self.chunk - len(clients)), shared.buffers
        told = shared._replace(round=scalar(shared.round, like), lr=scalar(shared.lr, like, like.dtype))
        return Flat.of(stacked(told, [each._replace(samples=_with_room(each.samples)) for each in full]))


def _first(full: Crossing, count: int) -> Crossing:
    return replace(full, thing=full.thing[:count])


def _with_room(samples: Any) -> Any:
    """A client's samples, with their index padded to a power of two."""
    return samples._replace(index=padded(samples.index, 1 << (len(samples.index) - 1).bit_length()))


def layout(tensor: Tensor) -> Any:
    """What a recording depends on of a tensor."""
    return tensor.shape, tensor.stride(), tensor.dtype


class _Gate:
    """Many threads run programs, or one thread alone records: torch runs no compiled code meanwhile."""

    def __init__(self) -> None:
        self._fewer, self._running = threading.Condition(), 0

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._fewer:
            self._fewer.wait_for(lambda: not self._running)
            yield

    @contextmanager
    def many(self) -> Iterator[None]:
        with self._fewer:
            self._running += 1
        try:
            yield
        finally:
            with self._fewer:
                self._running -= 1
                self._fewer.notify_all()


_GATE = _Gate()  # one for the process, as torch has one state
