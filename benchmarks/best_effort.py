"""The bare loop, as good as its author can make it: the limit with which a library is compared.

Channels-last kernels, no copies of modules, parameters in one flat vector that steps move in place, gradients by
`torch.autograd.grad`, and clients distributed over threads with one intra-op thread each.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Data = Sequence[tuple[Tensor, Tensor]]


class BestEffort:
    """Federated averaging with `threads` threads; `round(data, batches)` returns the mean of the clients' models."""

    def __init__(self, module: nn.Module, lr: float, threads: int):
        self.lr, self.threads = lr, threads
        self.workers = [Worker(module) for _ in range(threads)]
        self.start = self.workers[0].flat.clone()
        self.pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))

    def round(self, data: Data, batches: Sequence[Tensor]) -> Tensor:
        """The mean, as a vector in the order of the parameters."""
        work = iter(list(zip(data, batches, strict=True)))  # a list's iterator may be shared by threads
        sums = [self.pool.submit(worker.train, work, self.start, self.lr) for worker in self.workers]
        mean = torch.stack([one.result() for one in sums]).sum(0) / len(data)
        return self.workers[0].plain(mean)


class Worker:
    """One thread's module, whose parameters are parts of one vector."""

    def __init__(self, module: nn.Module):
        self.module = copy.deepcopy(module).to(memory_format=torch.channels_last)
        self.parameters = list(self.module.parameters())
        sizes = [p.numel() for p in self.parameters]
        self.flat = torch.empty(sum(sizes))
        for p, part in zip(self.parameters, self.flat.split(sizes), strict=True):
            place = part.as_strided(p.shape, p.stride())
            p.data = place.copy_(p.data)

    def train(self, work, start: Tensor, lr: float) -> Tensor:
        """The sum of the models of the clients that this worker trained."""
        total = torch.zeros_like(start)
        for (x, y), client in work:
            self.flat.copy_(start)
            for rows in client:
                loss = F.cross_entropy(self.module(x[rows]), y[rows])
                gradients = torch.autograd.grad(loss, self.parameters)
                with torch.no_grad():
                    torch._foreach_add_(self.parameters, gradients, alpha=-lr)
            total += self.flat
        return total

    def plain(self, vector: Tensor) -> Tensor:
        """A vector of this layout, converted to the usual layout."""
        parts = zip(self.parameters, vector.split([p.numel() for p in self.parameters]), strict=True)
        return torch.cat([part.as_strided(p.shape, p.stride()).reshape(-1) for p, part in parts])
