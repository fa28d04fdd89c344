"""Clients in parallel threads, each with a stream of the GPU of its own: kernels of several clients run at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from apiece.engine.stepping import Loop
from apiece.lifts.lift import Make, Threaded, begun
from apiece.system.device import Crossing


class Streamed(Threaded):
    """Clients in parallel threads, each on a CUDA stream of its thread.

    A client's stream waits for all work that the caller's stream received before the round, and the caller's stream
    waits for each reply: nothing is read before it is computed. Memory is freed when both streams are done with it. The
    first client that ever runs an operation runs on the caller's stream, because values that are made once and kept
    must be made there.
    """

    way = "side by side on streams of the GPU"

    def __init__(self, workers: int):
        super().__init__(workers)
        self._mine, self._known = threading.local(), set[Callable]()

    def run(self, operation: Callable, shared: Any, tasks: Iterable[Make]) -> Iterator[Any]:
        stepping, device, tasks = Loop(), shared.buffers.device, iter(tasks)
        callers = torch.cuda.current_stream(device)
        for task in islice(tasks, 0 if operation in self._known else 1):
            self._known.add(operation)
            yield begun(operation(stepping, shared, task()), device).arrived()
        prepared = callers.record_event()  # nothing that the caller waits for later is read by a client

        def job(task: Make) -> tuple[Crossing, Any]:
            own = self._stream(callers)
            own.wait_event(prepared)
            with torch.cuda.stream(own):
                return begun(operation(stepping, shared, task()), device), own.record_event()

        for crossing, made in self.in_order(lambda task=task: job(task) for task in tasks):
            reply = crossing.arrived()
            callers.wait_event(made)
            for leaf in tree_leaves(reply):
                if isinstance(leaf, Tensor) and leaf.device == callers.device:
                    leaf.record_stream(callers)
            yield reply

    def _stream(self, beside: torch.cuda.Stream) -> torch.cuda.Stream:
        if not hasattr(self._mine, "stream"):
            self._mine.stream = torch.cuda.Stream(beside.device)
        return self._mine.stream
