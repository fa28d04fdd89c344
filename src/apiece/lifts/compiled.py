"""The vectorized lift, compiled: a call is recorded once and cut where local steps begin, and the steps are compiled.

`make_fx` records one call for many clients as a graph of tensor operations; closures, pieces and autograd are no longer
in it. Equal steps are compiled once, so neither their number nor the round nor the step size needs another program.
Calls are filled up to full size, and steps are masked. torch keeps compiled code on the disk. Whether a step is
compiled depends on its recording alone, never on what this process has run before: a resumed run computes the same.
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

PART = "apiece.part"  # the key of an operation's part of the recording: 0 is before all steps
FEW = 4  # fewer clients with batches of one shape are not worth a program
WIDTHS = {"AVX2": 256, "AVX512": 512}  # bits of a vector register; torch knows only one width for any other processor
KINDS = 8  # more kinds of step in one recording, each with its number in it, are not worth compiling


@dataclass(frozen=True)
class Cut(Batched):
    """Masked steps that cut a recording before each of them and after the last."""

    def steps(self, count: Any) -> Iterator[tuple[int, Any]]:
        taken = list(super().steps(count))  # masks are made before the first cut, so that steps differ in inputs alone
        for step in taken:
            _cut()
            yield step
        _cut()


def _cut() -> None:
    """Make one part of all that was recorded since the last cut."""
    mode = get_proxy_mode()
    assert mode is not None, "only what is recorded can be cut"
    new = list(takewhile(lambda node: PART not in node.meta, reversed(mode.tracer.graph.nodes)))
    part = new[-1].prev.meta.get(PART, -1) + 1 if new else 0
    for node in new:
        node.meta = {PART: part}  # what else torch notes of each of a hundred thousand operations are gigabytes


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
        return self.rest, self.form, tuple(map(_layout, self.tensors))


class Compiled(SideBySide):
    """`chunk` clients in one call, filled up with clients whose replies are dropped; calls run in parallel threads.

    `compiler` makes a function of a graph. Where it fails, for example without a C++ compiler, recordings run
    uncompiled. An operation that asks a tensor for its value cannot be recorded and is vectorized without a recording.
    `told` gets a sentence for whatever is not compiled; by default it is a warning.
    """

    way = "several in one compiled call"

    def __init__(self, chunk: int = 32, workers: int = 1, compiler: Callable[[fx.GraphModule], Callable] | None = None):
        super().__init__(chunk, workers)
        self._compiler = compiler or _by_torch
        self.told: Callable[[str], object] = say
        self._steps: dict[Any, Callable] = {}  # the program of a kind of step
        self._programs: dict[Any, Callable] = {}  # the program of an operation on inputs of a shape
        self._refused: set[Callable] = set()  # operations that cannot be recorded

    def together(self, operation: Callable, shared: Any, clients: list[Any]) -> Crossing:
        if len(clients) < min(FEW, self.chunk) or operation in self._refused:
            with _GATE.many():
                return super().together(operation, shared, clients)
        stepping, inputs = Cut.of(clients), self._inputs(shared, clients)
        key = operation, stepping, inputs.shape
        if key not in self._programs:
            with _GATE.alone():
                if key not in self._programs:
                    result = super().together(operation, shared, clients)  # what is made once is not recorded
                    recording = self._record(operation, stepping, inputs)
                    if recording is None:
                        return result
                    self._programs[key] = recording
        with _GATE.many():
            full = replies(self._programs[key](inputs.tensors), self.chunk, shared.buffers.device)
            return replace(full, thing=full.thing[: len(clients)])

    def _inputs(self, shared: Any, clients: list[Any]) -> Flat:
        """The inputs of a full call, with round and step size as tensors and sample numbers rounded up, so that shapes
        are few.
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
            # as new objects: where the operation itself holds an input, as it holds the initial model in the first
            # round, its own would be recorded as the input
            graph = self.call(make_fx(flat), *(tensor.detach() for tensor in inputs.tensors))
        except Exception as error:  # the call itself has just succeeded
            reason = str(error).partition(" - ")[0]
            self.told(f"{operation.__name__!r} cannot be recorded, so it is not compiled but mapped as it is: {reason}")
            self._refused.add(operation)
            return None
        program = self._compile(graph, inputs.tensors)

        @torch.no_grad()
        def run(tensors: Sequence[Tensor]) -> Any:
            return form[0].whole(program(*tensors))

        return run

    def _compile(self, graph: fx.GraphModule, tensors: Sequence[Tensor]) -> fx.GraphModule:
        """The recording cut into its parts, with its steps compiled; operations before and after all steps are not."""
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
            if len(given) > KINDS:
                self.told(f"{len(given)} kinds of local step are too many to compile, so they run as recorded")
            for name, kind in kinds.items() if len(given) <= KINDS else ():
                if kind not in self._steps:
                    self._steps[kind] = self._tried(steps[name], given[kind])
                delattr(program, name)
                setattr(program, name, self._steps[kind])
        return program

    def _tried(self, step: Any, inputs: tuple) -> Callable:
        """The compiled step, or the step itself where compiling fails."""
        try:
            compiled = self._compiler(step)
            compiled(*inputs)
        except Exception as error:  # whatever a missing or a broken compiler raises
            reason = (str(error) or type(error).__name__).splitlines()[0]
            self.told(f"nothing can be compiled here, so recorded operations run as they are: {reason}")
            return step
        return compiled


class _Gate:
    """Many threads run compiled code, or one thread alone records: torch runs no compiled code meanwhile."""

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


def _by_torch(graph: fx.GraphModule) -> Callable:
    """The graph, compiled to one call of C++, during which other threads have the interpreter."""
    # torch would choose the same width. But the key under which it keeps generated source code on the disk contains
    # this option and not the processor: without the option, code that was generated for a narrow processor is
    # compiled for a wide one, and writes beyond its arrays.
    width = WIDTHS.get(torch.backends.cpu.get_cpu_capability())
    options = {"cpp_wrapper": True, "cpp.simdlen": width}
    return torch.compile(graph, fullgraph=True, dynamic=False, options=options)


def _with_room(samples: Any) -> Any:
    """A client's samples, with their index padded to a power of two."""
    return samples._replace(index=padded(samples.index, 1 << (len(samples.index) - 1).bit_length()))


def _layout(tensor: Tensor) -> Any:
    return tensor.shape, tensor.stride(), tensor.dtype


def _text(graph: fx.GraphModule) -> str:
    """What a graph computes, as a text in which operations have numbers instead of names."""
    names = {node: f"%{place}" for place, node in enumerate(graph.graph.nodes)}
    plain = lambda argument: map_aggregate(argument, lambda a: names[a] if isinstance(a, fx.Node) else str(a))
    said = ((n.op, "" if n.op == "placeholder" else str(n.target), n.args, n.kwargs) for n in graph.graph.nodes)
    return str([(op, target, plain(args), plain(kwargs)) for op, target, args, kwargs in said])


@cache
def say(what: str) -> None:
    """Log this warning once."""
    logging.getLogger(__name__).warning(what)
