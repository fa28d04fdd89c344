"""The vectorized lift on a GPU: a call is recorded as a CUDA graph, and from then on given to the GPU as a whole.

A round of local steps is tens of thousands of small kernels. Python takes longer to ask for one than the GPU to run it,
so that a GPU that is asked kernel by kernel idles. A recording asks for all of them at once, and computes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from apiece.engine.stepping import Batched
from apiece.lifts.lift import mapped
from apiece.lifts.products import WRITTEN
from apiece.lifts.recorded import Flat, Recorded

Replay = Callable[[], object]
Recorder = Callable[[Callable[[], Sequence[Tensor]]], tuple[Replay, Sequence[Tensor]]]
MOST = 16  # recordings; each has a list of its kernels, which takes some ten MiB


class Graphs(Recorded):
    """A call of a shape runs kernel by kernel the first time, is recorded the second time, and replayed from then on.

    `recorder` makes of a function without arguments what computes it again, and the tensors that then hold the result.
    """

    way, written = "several in one vectorized call, which is recorded as a CUDA graph", WRITTEN

    def __init__(self, chunk: int = 32, recorder: Recorder | None = None):
        super().__init__(chunk)
        self.recorder = recorder or ByCuda()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.chunk})"

    def record(
        self, operation: Callable, stepping: Batched, inputs: Flat, made: Any
    ) -> Callable[[Sequence[Tensor]], Any]:
        return _Program(self, mapped(operation, stepping, self.chunk), inputs, made)


class _Program:
    """What a call computes, for any tensors of its shapes: kernel by kernel, or as it was recorded."""

    def __init__(self, lift: Graphs, call: Callable[..., Any], inputs: Flat, made: Any):
        self.lift, self.call, self.form, self.made = lift, call, inputs._replace(tensors=()), made
        self.recording: tuple[Replay, Sequence[Tensor], Flat] | None = None
        self.able = len(lift.programs) < MOST
        _, pool, _ = inputs.whole(range(len(inputs.tensors)))  # type: ignore[arg-type]
        self.pool = frozenset(tree_leaves(pool))  # the places of the samples: read where they lie, never copied

    def __call__(self, tensors: Sequence[Tensor]) -> Any:
        if self.made is not None:
            made, self.made = self.made, None
            return made
        if self.recording is None and self.able:
            self.recording = self._recorded(tensors)
        if self.recording is None or any(tensors[i] is not self.recording[1][i] for i in self.pool):
            return self._plainly(tensors)
        replay, given, out = self.recording
        for place, (mine, theirs) in enumerate(zip(given, tensors, strict=True)):
            if place not in self.pool:
                mine.copy_(theirs)
        replay()
        return out.whole([tensor.clone() for tensor in out.tensors])  # the next replay writes where this one did

    def _plainly(self, tensors: Sequence[Tensor]) -> Any:
        return self.lift.call(self.call, *self.form.whole(tensors))

    def _recorded(self, tensors: Sequence[Tensor]) -> tuple[Replay, Sequence[Tensor], Flat] | None:
        given = [tensor if place in self.pool else tensor.clone() for place, tensor in enumerate(tensors)]
        form = list[Flat]()

        def flat() -> Sequence[Tensor]:
            out = Flat.of(self._plainly(given))
            form.append(out._replace(tensors=()))
            return out.tensors

        try:
            replay, made = self.lift.recorder(flat)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever asks the GPU for a value, or makes a tensor from numbers of the host
            self.able, reason = False, str(_first(error)).partition("\n")[0]
            self.lift.told(f"a call cannot be recorded as a CUDA graph, so the GPU gets it kernel by kernel: {reason}")
            return None
        return replay, given, form[0]._replace(tensors=made)


def _first(error: BaseException) -> BaseException:
    """The error that began it: where a recording is given up, its end raises another."""
    return error if error.__context__ is None else _first(error.__context__)


class ByCuda:
    """Records CUDA graphs that share their memory: one alone runs at a time, and its result is copied at once."""

    def __init__(self) -> None:
        self._pool: Any = None

    def __call__(self, function: Callable[[], Sequence[Tensor]]) -> tuple[Replay, Sequence[Tensor]]:
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph, callers, whole = torch.cuda.CUDAGraph(), torch.cuda.current_stream(), False
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                made = function()
            whole = True
        finally:
            # a recording that fails leaves its own stream in place of the caller's, on which other threads compute
            # at the same time, and its memory open to nothing else
            torch.cuda.set_stream(callers)
            self._pool = self._pool if whole else None
        return graph.replay, made
