"""From one client to many: a lift runs an operation written for one client over a cohort, and changes nothing else.

`run(operation, shared, tasks)` yields the replies in the order of the tasks; a task is made when its turn comes.
Sequential, threaded and worker processes are the exact class (bitwise the same run); vectorized is the rounding class.
"""

from __future__ import annotations

import gc
import logging
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten

from apiece.engine.state import Reply
from apiece.engine.stepping import Batched, Loop
from apiece.system.device import Crossing, in_turn, to_device
from apiece.system.typed import map_tree

Make = Callable[[], Any]  # makes one client's ClientTask
FEW = 4  # fewer clients, if they are not the rest of others, are not worth a program of their own

# The mean of a channels-last image under vmap, in every ResNet: its loop over clients takes no time
warnings.filterwarnings("ignore", ".*batching rule for aten::as_strided_")


@dataclass(frozen=True)
class Sequential:
    """One client after the other.

    >>> Sequential()
    Sequential()
    """

    way = "one after the other"

    def run(self, operation: Callable, shared: Any, tasks: Iterable[Make]) -> Iterator[Any]:
        stepping = Loop()
        return in_turn(begun(operation(stepping, shared, task()), shared.buffers.device) for task in tasks)


class Parallel:
    """Runs jobs in threads, each with one intra-op thread.

    Replies arrive in the order of the jobs. At most two jobs a worker wait, and no job starts once the caller has
    stopped. With one worker the caller does the work itself.
    """

    def __init__(self, workers: int):
        self.workers = workers
        self._pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))

    def in_order(self, jobs: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        """The result of each job, in the order of the jobs."""
        if self.workers == 1:
            yield from (job() for job in jobs)
            return
        pending: deque[Future] = deque()
        try:
            for job in jobs:
                pending.append(self._pool.submit(job))
                if len(pending) > 2 * self.workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:  # the caller may have stopped early
            for job in pending:
                job.cancel()

    def close(self) -> None:
        """End the threads, each after its current job. An interruption does not wait for these jobs."""
        interrupted = isinstance(sys.exc_info()[1], KeyboardInterrupt)
        self._pool.shutdown(wait=not interrupted, cancel_futures=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.workers})"


class Threaded(Parallel):
    """Clients in parallel threads. Each has the shared values as tensors of its own, so that torch counts apart what
    each changes in place: a slot that does so is refused by its own name.
    """

    way = "side by side in threads"

    def run(self, operation: Callable, shared: Any, tasks: Iterable[Make]) -> Iterator[Any]:
        stepping = Loop()
        own = partial(map_tree, lambda leaf: leaf.data if isinstance(leaf, Tensor) else leaf, shared)
        return self.in_order(lambda task=task: operation(stepping, own(), task()) for task in tasks)


class Vectorized(Parallel):
    """`chunk` clients in one call of vmap, calls in parallel threads; which clients share a call does not depend on the
    number of workers. Clients whose batches have other shapes have another call; steps are masked. Where a GPU has no
    memory for a call, calls become smaller, and `told` gets a sentence; by default it is a warning.
    """

    way = "several in one vectorized call"

    def __init__(self, chunk: int = 32, workers: int = 1):
        super().__init__(workers)
        self.chunk = chunk
        self.told: Callable[[str], object] = say

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.chunk}, {self.workers})"

    def run(self, operation: Callable, shared: Any, tasks: Iterable[Make]) -> Iterator[Any]:
        def begin(number: int, chunk: list[Make]) -> Crossing:
            clients = [task() for task in chunk]
            alike: dict[Any, list[int]] = {}
            for place, key in enumerate(_shapes(clients)):
                alike.setdefault(key, []).append(place)
            made, events = dict[int, Any](), list[Any]()
            for places in alike.values():
                rest = number and len(alike) == 1  # of clients that have filled other calls
                together = self.together if rest or len(places) >= min(FEW, self.chunk) else self.few
                parts = self.fitting(together, operation, shared, [clients[p] for p in places])
                made |= zip(places, chain.from_iterable(part.thing for part in parts), strict=True)
                events += [event for part in parts for event in part.events]
            return Crossing([made[place] for place in range(len(chunk))], tuple(events))

        tasks = iter(tasks)
        chunks = iter(lambda: list(islice(tasks, self.chunk)), [])
        for some in in_turn(self.in_order(partial(begin, *chunk) for chunk in enumerate(chunks))):
            yield from some

    def fitting(self, together: Callable, operation: Callable, shared: Any, clients: list[Any]) -> list[Crossing]:
        """The operation's replies for these clients, in one call or in as many as a GPU has memory for."""
        parts, rest = list[Crossing](), clients
        while rest:
            some, fits = rest[: self.chunk], True
            try:
                parts.append(together(operation, shared, some))
            except torch.OutOfMemoryError:
                if len(some) == 1:
                    raise
                fits = False
            if fits:
                rest = rest[len(some) :]
            else:  # and nothing holds what was computed until then
                self.smaller(-(-len(some) // 2))
        return parts

    def smaller(self, chunk: int) -> None:
        """From now on a call takes at most so many clients."""
        self.told(f"the GPU has no memory for {self.chunk} clients in one call, so a call takes {chunk}")
        self.chunk = chunk
        gc.collect()  # the error's traceback can hold what was computed until then
        torch.cuda.empty_cache()

    def together(self, operation: Callable, shared: Any, clients: list[Any]) -> Crossing:
        """The operation's replies for these clients, in one call."""
        call = mapped(operation, Batched.of(clients), len(clients))
        return replies(self.call(call, *stacked(shared, clients)), len(clients), shared.buffers.device)

    def few(self, operation: Callable, shared: Any, clients: list[Any]) -> Crossing:
        """The same for few clients who are not the rest of others: alone, or with batches of other shapes."""
        return self.together(operation, shared, clients)

    def call(self, function: Callable, *of: Any) -> Any:
        """The result of a function of stacked clients, called in this lift's way."""
        return function(*of)


class Rewritten(Vectorized):
    """Vectorized, but some functions of torch are replaced: `written` has the replacement of each."""

    written: Mapping[Callable, Callable]

    def call(self, function: Callable, *of: Any) -> Any:
        with _Written(self.written):
            return function(*of)


class _Written(TorchFunctionMode):
    """Replaces functions of torch in this thread while it is entered, also inside modules."""

    def __init__(self, written: Mapping[Callable, Callable]):
        super().__init__()
        self.written = written

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.written.get(func, func)(*args, **(kwargs or {}))


def _shapes(clients: list[Any]) -> Iterator[Any]:
    """A key for each client; clients with the same key can be stacked. Their numbers of full batches may differ, the
    shapes of their batches and pools may not.
    """
    pools: dict[int, Any] = {}  # most often all clients share one
    for each in clients:
        batches, pool = each.batches, each.samples.pool
        one = batches.shape[1:] if isinstance(batches, Tensor) else tuple(b.shape for b in batches)
        if id(pool) not in pools:
            pools[id(pool)] = tuple((leaf.shape, leaf.dtype) for leaf in tree_flatten(pool)[0])
        yield one, pools[id(pool)]


def _first(tree: Any) -> Any:
    return tree_flatten(tree)[0][0]


def stacked(shared: Any, clients: list[Any]) -> tuple[Any, Any, Any]:
    """(what all clients share, the pool of samples that all draw from, the clients with a leading axis).

    Where each client has a pool of its own, the second is () and the pools are stacked with the clients.
    """
    pool = clients[0].samples.pool
    if any(own is not pool and _first(own) is not _first(pool) for own in (each.samples.pool for each in clients)):
        return shared, (), _stack(clients, shared.buffers)
    return shared, pool, _stack([_drawing_from((), each) for each in clients], shared.buffers)


def mapped(operation: Callable, stepping: Any, count: int) -> Callable[[Any, Any, Any], Any]:
    """The operation for `count` clients, as a function of the three that `stacked` returns."""

    def call(shared: Any, pool: Any, clients: Any) -> Any:
        def one(each: Any, buffers: Tensor) -> Any:
            return operation(stepping, shared._replace(buffers=buffers), _drawing_from(pool or each.samples.pool, each))

        return torch.func.vmap(one)(clients, shared.buffers.repeat(count, 1))  # moved in place: each has its own

    return call


def _drawing_from(pool: Any, each: Any) -> Any:
    return each._replace(samples=each.samples._replace(pool=pool))


def _stack(trees: Sequence[Any], like: Tensor) -> Any:
    """One tree with a leading client axis; shorter leaves are padded with their last entry."""
    first = trees[0]
    if isinstance(first, Tensor):
        lengths = {t.size(0) if t.dim() else 0 for t in trees}
        return torch.stack([padded(t, max(lengths)) for t in trees] if len(lengths) > 1 else list(trees))
    if isinstance(first, tuple | list | dict) and not first:  # most of a client's row
        return first
    if isinstance(first, dict):
        return {name: _stack([tree[name] for tree in trees], like) for name in first}
    if isinstance(first, tuple | list):
        return _like(first, [_stack(parts, like) for parts in zip(*trees, strict=True)])
    dtype = torch.float64 if isinstance(first, float) else None  # as clients one by one count it
    return to_device(torch.tensor(trees, dtype=dtype), like.device)


def replies(stack: Any, count: int, device: torch.device) -> Crossing:
    """The replies in a stack; what the host reads of them crosses from the device all at once."""
    crossing = begun(stack, device)
    return Crossing(apart(crossing.thing, count), crossing.events)


def begun(reply: Any, device: torch.device) -> Crossing:
    """A reply, of which the part that the host reads is on its way from the device."""
    return reply.crossing(device) if isinstance(reply, Reply) else Crossing(reply)


def apart(tree: Any, count: int) -> list[Any]:
    """The `count` trees that a stacked tree is made of."""
    if isinstance(tree, Tensor):
        return list(tree.unbind())
    if not tree:
        return [tree] * count
    parts = [apart(part, count) for part in (tree.values() if isinstance(tree, dict) else tree)]
    whole = zip(*parts, strict=True)
    return [dict(zip(tree, each, strict=True)) if isinstance(tree, dict) else _like(tree, each) for each in whole]


def _like(template: tuple | list, parts: Iterable[Any]) -> Any:
    """A list, or a tuple of the template's own kind, named or plain."""
    return getattr(template, "_make", type(template))(parts)


def padded(t: Tensor, length: int) -> Tensor:
    """The tensor with its last entry repeated up to this length."""
    return t if t.size(0) == length else torch.cat([t, t[-1:].expand(length - t.size(0), *t.shape[1:])])


@cache
def say(what: str) -> None:
    """Log this warning once."""
    logging.getLogger(__name__).warning(what)
