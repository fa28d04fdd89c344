"""The vectorized lift, compiled: a call is recorded once, cut where local steps begin, and the steps are compiled.

What many clients do in one call is recorded as a graph of tensor operations (`make_fx`): of closures, pieces and
autograd only these are left. Steps that come out alike are compiled once, so that neither their number, the round nor
the step size is compiled for. Calls are made full, steps are masked. Compiled code is kept on the disk by torch.
Whether something is compiled follows from its recording alone, never from what this process has seen before: a run
that is resumed computes the same.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from torch.fx.node import map_aggregate
from torch.fx.passes.split_module import split_module
from torch.utils._pytree import tree_flatten, tree_unflatten

from apiece.engine.stepping import Batched
from apiece.lifts.lift import mapped, padded, replies, stacked
from apiece.lifts.side_by_side import SideBySide
from apiece.system.device import Crossing, scalar

PART = "apiece.part"  # which part of the recording an operation belongs to: 0 is before all steps
FEW = 4  # fewer clients, whose batches have a shape of their own, are not worth a program
WIDTHS = {"AVX2": 256, "AVX512": 512}  # bits of a vector register; torch knows only one width of any other processor
KINDS = 8  # more kinds of step in one recording, told apart by their number, are not worth a compiler's seconds


@dataclass(frozen=True)
class Cut(Batched):
    """Steps between which a recording is cut."""

    def steps(self, count: Any) -> Iterator[tuple[int, Any]]:
        taken = list(super().steps(count))  # masks are made before the first cut: steps differ in nothing but inputs
        for step in taken:
            _cut()
            yield step
        _cut()


def _cut() -> None:
    """All that was recorded since the last cut is one part."""
    mode = get_proxy_mode()
    assert mode is not None, "only what is recorded can be cut"
    new = list(takewhile(lambda node: PART not in node.meta, reversed(mode.tracer.graph.nodes)))
    part = new[-1].prev.meta.get(PART, -1) + 1 if new else 0
    for node in new:
        node.meta[PART] = part


class Flat(NamedTuple):
    """A tree taken apart: its tensors, and the rest, `Tensor` where one is."""

    tensors: Sequence[Tensor]
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
        return self.rest, self.form, tuple(map(_layout, self.tensors))


class Compiled(SideBySide):
    """`chunk` clients in one call, made full by clients that do not count; calls in parallel threads.

    `compiler` makes of a graph what runs it. Where it fails, as without a C++ compiler, recordings run as they are. An
    operation that cannot be recorded, since it asks a tensor for its value, is mapped as it is.
    """

    def __init__(self, chunk: int = 32, workers: int = 1, compiler: Callable[[fx.GraphModule], Callable] | None = None):
        super().__init__(chunk, workers)
        self._compiler = compiler or _by_torch
        self._steps: dict[Any, Callable] = {}  # what runs a step of a kind
        self._programs: dict[Any, Callable] = {}  # what runs an operation on inputs of a shape
        self._refused: set[Callable] = set()  # what cannot be recorded

    def together(self, operation: Callable, shared: Any, clients: list[Any]) -> Crossing:
        if len(clients) < min(FEW, self.chunk) or operation in self._refused:
            with _GATE.many():
                return super().together(operation, shared, clients)
        stepping, inputs = Cut.of(clients), self._inputs(shared, clients)
        key = operation, stepping, inputs.shape
        if key not in self._programs:
            with _GATE.alone():
                if key not in self._programs:
                    result = super().together(operation, shared, clients)  # what is made once is not to be recorded
                    recording = self._record(operation, stepping, inputs)
                    if recording is None:
                        return result
                    self._programs[key] = recording
        with _GATE.many():
            full = replies(self._programs[key](inputs.tensors), self.chunk, shared.buffers.device)
            return replace(full, thing=full.thing[: len(clients)])

    def _inputs(self, shared: Any, clients: list[Any]) -> Flat:
        """A full call's: the round and the step size too, and clients' numbers of samples rounded up, so that few
        shapes come.
        """
        full, like = clients + clients[-1:] * (self.chunk - len(clients)), shared.buffers
        told = shared._replace(round=scalar(shared.round, like), lr=scalar(shared.lr, like, like.dtype))
        return Flat.of(stacked(told, [each._replace(samples=_with_room(each.samples)) for each in full]))

    def _record(self, operation: Callable, stepping: Cut, inputs: Flat) -> Callable[[Sequence[Tensor]], Any] | None:
        call, form = mapped(operation, stepping, self.chunk), []

        def flat(*tensors: Tensor) -> Sequence[Tensor]:
            out = Flat.of(call(*inputs.whole(tensors)))
            form.append(out._replace(tensors=()))
            return out.tensors

        try:
            # as objects of their own: a tensor that the operation holds too, as the model of the first round is its
            # initial one, would be taken for the input
            graph = self.call(make_fx(flat), *(tensor.detach() for tensor in inputs.tensors))
        except Exception as error:  # the call itself has just succeeded
            reason = str(error).partition(" - ")[0]
            _say(f"{operation.__name__!r} cannot be recorded, so it is not compiled but mapped as it is: {reason}")
            self._refused.add(operation)
            return None
        program = self._compile(graph, inputs.tensors)

        @torch.no_grad()
        def run(tensors: Sequence[Tensor]) -> Any:
            return form[0].whole(program(*tensors))

        return run

    def _compile(self, graph: fx.GraphModule, tensors: Sequence[Tensor]) -> fx.GraphModule:
        """The recording cut into its parts, with its steps compiled; what is before and after all of them is not."""
        last = max(node.meta.get(PART, 0) for node in graph.graph.nodes) + 1
        program = split_module(graph, torch.nn.Module(), lambda node: node.meta.get(PART, last))
        kinds: dict[str, Any] = {}
        given: dict[Any, Any] = {}

        def look(name: str, step: Any, inputs: tuple) -> None:
            kinds[name] = _text(step), tuple(_layout(x) if isinstance(x, Tensor) else x for x in inputs)
            given.setdefault(kinds[name], inputs)

        steps = {n: p for n, p in program.named_children() if 0 < int(n.rpartition("_")[2]) < last}
        looks = [p.register_forward_pre_hook(partial(look, n)) for n, p in steps.items()]
        with torch.no_grad():
            program(*tensors)
            for handle in looks:
                handle.remove()
            for name, kind in kinds.items() if len(given) <= KINDS else ():
                if kind not in self._steps:
                    self._steps[kind] = self._tried(steps[name], given[kind])
                delattr(program, name)
                setattr(program, name, self._steps[kind])
        return program

    def _tried(self, step: Any, inputs: tuple) -> Callable:
        """The step compiled, or as it is where that fails."""
        try:
            compiled = self._compiler(step)
            compiled(*inputs)
        except Exception as error:  # whatever a missing or a broken compiler makes of it
            reason = (str(error) or type(error).__name__).splitlines()[0]
            _say(f"nothing can be compiled here, so recorded operations run as they are: {reason}")
            return step
        return compiled


class _Gate:
    """Many threads run what is compiled, or one alone records: torch lets nothing compiled run meanwhile."""

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


_GATE = _Gate()  # of the process, as what it guards is


def _by_torch(graph: fx.GraphModule) -> Callable:
    """Compiled to one call of C++, in which other threads have the interpreter."""
    # The width is what torch would choose itself. But torch keeps on the disk source code that was generated for a
    # width, under a key that holds this option and not the processor: without the option, code for a narrow processor
    # is compiled for a wide one, and writes beyond its arrays.
    width = WIDTHS.get(torch.backends.cpu.get_cpu_capability())
    options = {"cpp_wrapper": True, "cpp.simdlen": width}
    return torch.compile(graph, fullgraph=True, dynamic=False, options=options)


def _with_room(samples: Any) -> Any:
    """A client's samples, their list padded to a power of two."""
    return samples._replace(index=padded(samples.index, 1 << (len(samples.index) - 1).bit_length()))


def _layout(tensor: Tensor) -> Any:
    return tensor.shape, tensor.stride(), tensor.dtype


def _text(graph: fx.GraphModule) -> str:
    """What a graph does, whatever its operations are called."""
    names = {node: f"%{place}" for place, node in enumerate(graph.graph.nodes)}
    plain = lambda argument: map_aggregate(argument, lambda a: names[a] if isinstance(a, fx.Node) else str(a))
    said = ((n.op, "" if n.op == "placeholder" else str(n.target), n.args, n.kwargs) for n in graph.graph.nodes)
    return str([(op, target, plain(args), plain(kwargs)) for op, target, args, kwargs in said])


@cache
def _say(what: str) -> None:
    """Once."""
    logging.getLogger(__name__).warning(what)
