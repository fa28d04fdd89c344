"""The vectorised lift, compiled: a call is recorded once, cut where local steps begin, and each part is compiled.

What many clients do in one call is recorded as a graph of tensor operations (`make_fx`): closures, pieces and autograd
are gone from it, whatever they were. Steps that come out alike are one part, compiled once, so that neither the number
of steps nor of rounds is compiled for. The round and the step size are inputs, calls have one size, steps are masked.
Compiled code is kept on the disk by torch; an algorithm that asks a tensor for its value while it works (FedCOG's
rounds to wait) cannot be recorded, and is mapped as it is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from torch.fx.node import map_aggregate
from torch.fx.passes.split_module import split_module
from torch.utils._pytree import tree_flatten, tree_unflatten

from driftless.device import scalar
from driftless.lift import Batched, Vectorised, apart, mapped, stacked

PART = "driftless.part"  # which part of the recording an operation belongs to


@dataclass(frozen=True)
class Cut(Batched):
    """Steps between which a recording is cut."""

    parts: Iterator[int] = field(default_factory=count, compare=False)

    def steps(self, count: Any) -> Iterator[tuple[int, Any]]:
        steps = list(super().steps(count))  # masks are made before the first cut: steps differ in nothing but inputs
        for step in steps:
            self.here()
            yield step
        self.here()

    def here(self) -> None:
        """All that was recorded since the last cut is one part."""
        part, mode = next(self.parts), get_proxy_mode()
        assert mode is not None, "only what is recorded can be cut"
        for node in reversed(mode.tracer.graph.nodes):
            if PART in node.meta:
                break
            node.meta[PART] = part


class Flat(NamedTuple):
    """A tree taken apart: its tensors, and the rest, `Tensor` where one is."""

    tensors: list[Tensor]
    rest: tuple
    form: Any

    @classmethod
    def of(cls, tree: Any) -> Flat:
        leaves, form = tree_flatten(tree)
        rest = tuple(Tensor if isinstance(leaf, Tensor) else leaf for leaf in leaves)
        return cls([leaf for leaf in leaves if isinstance(leaf, Tensor)], rest, form)

    def whole(self, tensors: Sequence[Tensor]) -> Any:
        """The tree, with these tensors in it."""
        tensor = iter(tensors)
        return tree_unflatten([next(tensor) if leaf is Tensor else leaf for leaf in self.rest], self.form)

    @property
    def shape(self) -> Any:
        """All that a recording is for: everything but what is in the tensors."""
        return self.rest, self.form, tuple((t.shape, t.dtype) for t in self.tensors)


class Compiled(Vectorised):
    """`chunk` clients in one call, made full by clients that do not count; calls in parallel threads.

    `compiler` makes of a graph what runs it. Where it fails, as without a C++ compiler, graphs run as they are.
    """

    def __init__(self, chunk: int = 16, workers: int = 1, compiler: Callable[[fx.GraphModule], Callable] | None = None):
        super().__init__(chunk, workers)
        self._compiler = compiler or (lambda graph: torch.compile(graph, fullgraph=True, dynamic=False))
        self._steps: dict[str, Callable] = {}  # compiled, by what they do
        self._programs: dict[Any, Callable | None] = {}  # what runs an operation on inputs of a shape
        self._gate = _Gate()

    def together(self, operation: Callable, shared: Any, clients: list[Any]) -> list[Any]:
        few = 2 * len(clients) < self.chunk  # whose batches have another shape: not worth a program of their own
        program, inputs = (None, None) if few else self._found(operation, shared, clients)
        with self._gate.many():
            if program is None or inputs is None:
                return super().together(operation, shared, clients)
            return apart(program(inputs.tensors), self.chunk)[: len(clients)]

    def _found(self, operation: Callable, shared: Any, clients: list[Any]) -> tuple[Callable | None, Flat]:
        """(what runs the operation on inputs of this shape, None where it cannot be recorded; the inputs)."""
        full, like = clients + clients[-1:] * (self.chunk - len(clients)), shared.buffers
        told = shared._replace(round=scalar(shared.round, like), lr=scalar(shared.lr, like, like.dtype))
        room = lambda length: 1 << (length - 1).bit_length()  # few shapes, whatever numbers of samples there are
        inputs, counts = Flat.of(stacked(told, full, room)), [int(each.steps) for each in clients]
        most, ragged = max(counts), len(set(counts)) > 1
        key = operation, most, ragged, inputs.shape
        if key not in self._programs:
            with self._gate.alone():
                if key not in self._programs:
                    super().together(operation, shared, clients)  # what is made once is made now, and not recorded
                    call = mapped(operation, Cut(most, ragged), self.chunk)
                    self._programs[key] = self._recorded(operation.__name__, call, inputs)
        return self._programs[key], inputs

    def _recorded(self, name: str, call: Callable, inputs: Flat) -> Callable[[list[Tensor]], Any] | None:
        made: list[Flat] = []

        def flat(*tensors: Tensor) -> list[Tensor]:
            made.append(Flat.of(call(*inputs.whole(tensors))))
            return made[-1].tensors

        try:
            graph = make_fx(flat)(*inputs.tensors)
        except Exception as error:  # the call itself has just succeeded
            reason = str(error).partition(" - ")[0]
            _say(f"{name!r} cannot be recorded, so it is not compiled but mapped as it is: {reason}")
            return None
        last = max(node.meta.get(PART, 0) for node in graph.graph.nodes) + 1
        program = split_module(graph, torch.nn.Module(), lambda node: node.meta.get(PART, last))
        steps: list[tuple[str, Any]] = list(program.named_children())[1:-1]
        for name, step in steps:  # what is before and after all of them runs as it is
            text = _text(step)
            if text not in self._steps:
                self._steps[text] = _Step(self._compiler(step), step)
            delattr(program, name)
            setattr(program, name, self._steps[text])

        @torch.no_grad()
        def run(tensors: list[Tensor]) -> Any:
            return made[0].whole(program(*tensors))

        run(inputs.tensors)  # here it is compiled
        return run


class _Gate:
    """Many threads may run what is compiled, or one alone records: torch runs nothing compiled meanwhile, in no
    thread.
    """

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


class _Step:
    """A compiled graph; the graph itself from where its compiler failed."""

    def __init__(self, compiled: Callable, graph: Callable):
        self._run, self._graph = compiled, graph

    def __call__(self, *inputs: Any) -> Any:
        if self._run is self._graph:
            return self._graph(*inputs)
        try:
            return self._run(*inputs)
        except Exception as error:  # whatever a missing or a broken compiler makes of it
            _say(f"nothing can be compiled here, so recorded operations run as they are: {str(error).splitlines()[0]}")
            self._run = self._graph
            return self._graph(*inputs)


def _text(graph: fx.GraphModule) -> str:
    """What a graph does, whatever its operations are called."""
    names = {node: f"%{place}" for place, node in enumerate(graph.graph.nodes)}

    def plain(argument: Any) -> Any:
        return map_aggregate(argument, lambda a: names[a] if isinstance(a, fx.Node) else str(a))

    return str(
        [
            (n.op, "" if n.op == "placeholder" else str(n.target), plain(n.args), plain(n.kwargs))
            for n in graph.graph.nodes
        ]
    )


_said: set[str] = set()


def _say(what: str) -> None:
    if what not in _said:
        _said.add(what)
        logging.getLogger(__name__).warning(what)
