"""From one client to many: a lift runs an operation that is written for one client over a cohort, and changes nothing
else.

`run(operation, shared, tasks)` yields replies in the order of the tasks, each made when it is due. Sequential, threaded
and `processes.py` are the exact class (bitwise the same run); vectorised is the rounding class.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from driftless.device import to_device

Make = Callable[[], Any]  # makes one client's Each


@dataclass(frozen=True)
class Loop:
    """One client at a time: autograd's own gradient, and as many steps as the client has."""

    def differentiate(self, function: Callable, theta: Tensor) -> tuple[Tensor, Tensor, Any]:
        """(gradient [D], value, auxiliary value) of a function theta -> (value, auxiliary value)."""
        leaf = theta.detach().requires_grad_()
        value, auxiliary = function(leaf)
        (gradient,) = torch.autograd.grad(value, leaf)
        return gradient, value.detach(), auxiliary

    def take(self, pool: Any, places: Tensor) -> Any:
        """The samples [B, ...] at these places [B] of the pool."""
        return _leaves(lambda leaf: leaf.index_select(0, places), pool)

    def steps(self, count: Any) -> Iterator[tuple[int, Any]]:
        """(number of the step, whether it is taken) of a client with so many."""
        return ((k, True) for k in range(int(count)))


@dataclass(frozen=True)
class Batched:
    """Many clients in one call: all take `most` steps, those beyond a client's own are masked."""

    most: int
    ragged: bool

    def differentiate(self, function: Callable, theta: Tensor) -> tuple[Tensor, Tensor, Any]:
        gradient, (value, auxiliary) = torch.func.grad_and_value(function, has_aux=True)(theta)
        return gradient, value, auxiliary

    def take(self, pool: Any, places: Tensor) -> Any:
        return _leaves(lambda leaf: _lookup(leaf, places), pool)

    def steps(self, count: Any) -> Iterator[tuple[int, Any]]:
        most = count if isinstance(count, int) else self.most
        return ((k, k < count if self.ragged else True) for k in range(most))


@dataclass(frozen=True)
class Sequential:
    """One client after the other."""

    def run(self, operation: Callable, shared: Any, tasks: Iterable[Make]) -> Iterator[Any]:
        how = Loop()
        for task in tasks:
            yield operation(how, shared, task())


class Parallel:
    """What runs in threads, each with one intra-op thread; replies come in order, at most two jobs a worker wait.

    One worker is the caller itself.
    """

    def __init__(self, workers: int):
        self.workers = workers
        self._pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))

    def in_order(self, jobs: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        """What each job gives, in the order of the jobs."""
        if self.workers == 1:
            yield from (job() for job in jobs)
            return
        pending: deque[Future] = deque()
        for job in jobs:
            pending.append(self._pool.submit(job))
            if len(pending) > 2 * self.workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.workers})"


class Threaded(Parallel):
    """Clients in parallel threads."""

    def run(self, operation: Callable, shared: Any, tasks: Iterable[Make]) -> Iterator[Any]:
        how = Loop()
        return self.in_order(lambda task=task: operation(how, shared, task()) for task in tasks)


class Vectorised(Parallel):
    """`chunk` clients in one call of vmap, calls in parallel threads: which clients share one is the same for any
    number of workers. Clients whose batches have other shapes are called apart; steps are masked.
    """

    def __init__(self, chunk: int = 32, workers: int = 1):
        super().__init__(workers)
        self.chunk = chunk

    def run(self, operation: Callable, shared: Any, tasks: Iterable[Make]) -> Iterator[Any]:
        def together(chunk: list[Make]) -> list[Any]:
            clients = [task() for task in chunk]
            alike: dict[Any, list[int]] = {}
            for place, each in enumerate(clients):
                alike.setdefault(_shapes(each), []).append(place)
            replies: dict[int, Any] = {}
            for places in alike.values():
                replies |= zip(places, _together(operation, shared, [clients[p] for p in places]), strict=True)
            return [replies[place] for place in range(len(chunk))]

        tasks = iter(tasks)
        chunks = iter(lambda: list(islice(tasks, self.chunk)), [])
        for replies in self.in_order(lambda chunk=chunk: together(chunk) for chunk in chunks):
            yield from replies


def _leaves(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """`tree_map`, at a tenth of its price for the pair of tensors that most batches are."""
    if isinstance(tree, Tensor):
        return function(tree)
    return tuple(_leaves(function, part) for part in tree) if type(tree) is tuple else tree_map(function, tree)


def _lookup(leaf: Tensor, places: Tensor) -> Tensor:
    """leaf[places] as rows of a table: under vmap the one way of three that copies rows whole (3 to 5 times faster)."""
    rows = torch.embedding(leaf.reshape(len(leaf), -1), places)
    return rows.reshape(*places.shape, *leaf.shape[1:])


def _shapes(each: Any) -> Any:
    """Clients with the same key can be stacked: ragged numbers of full batches can, ragged batches or pools cannot."""
    batches = each.batches
    one = batches.shape[1:] if isinstance(batches, Tensor) else tuple(b.shape for b in batches)
    return one, tuple((leaf.shape, leaf.dtype) for leaf in tree_flatten(each.samples.pool)[0])


def _first(tree: Any) -> Any:
    return tree_flatten(tree)[0][0]


def _together(operation: Callable, shared: Any, chunk: list[Any]) -> list[Any]:
    pool = chunk[0].samples.pool
    common = all(_first(each.samples.pool) is _first(pool) for each in chunk)  # else made for each: stacked too
    counts = [int(each.steps) for each in chunk]
    how = Batched(max(counts), len(set(counts)) > 1)
    bare = [each._replace(samples=each.samples._replace(pool=())) for each in chunk] if common else chunk
    stacked = _stack(bare, shared.buffers)

    def one(each: Any, buffers: Tensor) -> Any:
        each = each._replace(samples=each.samples._replace(pool=pool)) if common else each
        return operation(how, shared._replace(buffers=buffers), each)

    out = torch.func.vmap(one)(stacked, shared.buffers.repeat(len(chunk), 1))  # moved in place: each client has its own
    return _apart(out, len(chunk))


def _stack(trees: Sequence[Any], like: Tensor) -> Any:
    """One tree with a leading client axis; shorter leaves are padded at the end by their own last entry."""
    first = trees[0]
    if isinstance(first, Tensor):
        longest = max(len(t) if t.dim() else 0 for t in trees)
        return torch.stack([_padded(t, longest) for t in trees])
    if isinstance(first, dict):
        return {name: _stack([tree[name] for tree in trees], like) for name in first}
    if isinstance(first, tuple):
        return _like(first, [_stack(parts, like) for parts in zip(*trees, strict=True)])
    return to_device(torch.tensor(trees), like.device)


def _apart(tree: Any, count: int) -> list[Any]:
    """The trees of which `tree` is the stack."""
    if isinstance(tree, Tensor):
        return list(tree.unbind())
    parts = [_apart(part, count) for part in (tree.values() if isinstance(tree, dict) else tree)]
    whole = zip(*parts, strict=True) if parts else [()] * count
    return [dict(zip(tree, each, strict=True)) if isinstance(tree, dict) else _like(tree, each) for each in whole]


def _like(template: tuple, parts: Iterable[Any]) -> Any:
    """A tuple of the template's own kind, named or plain."""
    return getattr(template, "_make", tuple)(parts)


def _padded(t: Tensor, length: int) -> Tensor:
    if not t.dim() or len(t) == length:
        return t
    return torch.cat([t, t[-1:].expand(length - len(t), *t.shape[1:])])
