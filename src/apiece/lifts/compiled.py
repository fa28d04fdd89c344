"""The vectorized lift, compiled: a call is recorded once and cut where local steps begin, and the steps are compiled.

`make_fx` records one call for many clients as a graph of tensor operations; closures, pieces and autograd are no longer
in it. Equal steps are compiled once, so neither their number nor the round nor the step size needs another program.
torch keeps compiled code on the disk. Whether a step is compiled depends on its recording alone, never on what this
process has run before: a resumed run computes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from torch.fx.node import map_aggregate
from torch.fx.passes.split_module import split_module

from apiece.engine.stepping import Batched
from apiece.lifts.recorded import Flat, Recorded, layout
from apiece.lifts.side_by_side import SideBySide

PART = "apiece.part"  # the key of an operation's part of the recording: 0 is before all steps
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


class Compiled(Recorded):
    """`compiler` makes a function of a graph. Where it fails, for example without a C++ compiler, recordings run
    uncompiled. An operation that asks a tensor for its value cannot be recorded and is vectorized without a recording.
    """

    way, stepping, written = "several in one compiled call", Cut, SideBySide.written

    def __init__(self, chunk: int = 32, workers: int = 1, compiler: Callable[[fx.GraphModule], Callable] | None = None):
        super().__init__(chunk, workers)
        self._compiler = compiler or _by_torch
        self._steps: dict[Any, Callable] = {}  # the program of a kind of step

    def record(self, call: Callable[..., Any], inputs: Flat, made: Any) -> Callable[[Sequence[Tensor]], Any]:
        form = list[Flat]()

        def flat(*tensors: Tensor) -> Sequence[Tensor]:
            out = Flat.of(call(*inputs.whole(tensors)))
            form.append(out._replace(tensors=()))
            return out.tensors

        # as new objects: where the operation itself holds an input, as it holds the initial model in the first
        # round, its own would be recorded as the input
        graph = self.call(make_fx(flat), *(tensor.detach() for tensor in inputs.tensors))
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
            kinds[name] = _text(step), tuple(layout(x) if isinstance(x, Tensor) else x for x in inputs)
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


def _by_torch(graph: fx.GraphModule) -> Callable:
    """The graph, compiled to one call of C++, during which other threads have the interpreter."""
    # torch would choose the same width. But the key under which it keeps generated source code on the disk contains
    # this option and not the processor: without the option, code that was generated for a narrow processor is
    # compiled for a wide one, and writes beyond its arrays.
    width = WIDTHS.get(torch.backends.cpu.get_cpu_capability())
    options = {"cpp_wrapper": True, "cpp.simdlen": width}
    return torch.compile(graph, fullgraph=True, dynamic=False, options=options)


def _text(graph: fx.GraphModule) -> str:
    """What a graph computes, as a text in which operations have numbers instead of names."""
    names = {node: f"%{place}" for place, node in enumerate(graph.graph.nodes)}
    plain = lambda argument: map_aggregate(argument, lambda a: names[a] if isinstance(a, fx.Node) else str(a))
    said = ((n.op, "" if n.op == "placeholder" else str(n.target), n.args, n.kwargs) for n in graph.graph.nodes)
    return str([(op, target, plain(args), plain(kwargs)) for op, target, args, kwargs in said])
