"""The vectorized lift, compiled: a call is recorded once and cut where local steps begin, and the steps are compiled.

`make_fx` records one call for many clients as a graph of tensor operations; closures, pieces and autograd are no longer
in it. Of a loop, three steps are recorded and two compiled (`loops.py`), so that neither the number of steps nor the
round nor the step size needs another program. torch keeps compiled code on the disk. Whether a step is compiled depends
on its recording alone, never on what this process has run before: a resumed run computes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from apiece.engine.stepping import Batched
from apiece.lifts.lift import mapped
from apiece.lifts.loops import Cut, Repeated, folded, text
from apiece.lifts.recorded import Flat, Recorded, layout
from apiece.lifts.side_by_side import SideBySide

WIDTHS = {"AVX2": 256, "AVX512": 512}  # bits of a vector register; torch knows only one width for any other processor
KINDS = 8  # more kinds of step in one recording, each with its number in it, are not worth compiling


class Compiled(Recorded):
    """`compiler` makes a function of a graph. Where it fails, for example without a C++ compiler, recordings run
    uncompiled. An operation that asks a tensor for its value cannot be recorded and is vectorized without a recording.
    """

    way, written = "several in one compiled call", SideBySide.written

    def __init__(self, chunk: int = 32, workers: int = 1, compiler: Callable[[fx.GraphModule], Callable] | None = None):
        super().__init__(chunk, workers)
        self._compiler = compiler or _by_torch
        self._steps: dict[Any, Callable] = {}  # the program of a kind of step

    def record(
        self, operation: Callable, stepping: Batched, inputs: Flat, made: Any
    ) -> Callable[[Sequence[Tensor]], Any]:
        plain = stepping.most, stepping.ragged, stepping.begun
        try:
            program, form = self._program(operation, Cut(*plain), inputs)
        except torch.OutOfMemoryError:
            raise
        except Exception:  # a step asks for its number, or is unlike the one before it
            program, form = self._program(operation, Cut(*plain, numbered=True), inputs)

        @torch.no_grad()
        def run(tensors: Sequence[Tensor]) -> Any:
            return form.whole(program(*tensors))

        return run

    def _program(self, operation: Callable, cut: Cut, inputs: Flat) -> tuple[fx.GraphModule, Flat]:
        """(the recording of a call with its steps compiled, the form of its result); raises Unlike, and whatever
        recording raises.
        """
        call, form = mapped(operation, cut, self.chunk), list[Flat]()

        def flat(*tensors: Tensor) -> Sequence[Tensor]:
            out = Flat.of(call(*inputs.whole(tensors)))
            form.append(out._replace(tensors=()))
            return out.tensors

        # as new objects: where the operation itself holds an input, as it holds the initial model in the first
        # round, its own would be recorded as the input
        recording = self.call(make_fx(flat), *(tensor.detach() for tensor in inputs.tensors))
        steps = folded(recording, cut.loops)
        with torch.no_grad():
            recording(*inputs.tensors)
            self._compile(steps)
        return recording, form[0]

    def _compile(self, steps: Sequence[Repeated]) -> None:
        """Compile each kind of step once."""
        kinds, given = dict[Repeated, Any](), dict[Any, tuple]()
        for step in steps:
            inputs, step.shown = step.shown or (), ()
            kinds[step] = text(step.recorded), tuple(map(layout, inputs))
            given.setdefault(kinds[step], inputs)
        if len(given) > KINDS:
            self.told(f"{len(given)} kinds of local step are too many to compile, so they run as recorded")
            return
        for step, kind in kinds.items():
            if kind not in self._steps:
                self._steps[kind] = self._tried(step.recorded, given[kind])
            step.run = self._steps[kind]

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

