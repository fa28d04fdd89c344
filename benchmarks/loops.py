"""The bare loop that people write, and the least that a softmax regression can cost."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def bare_round(
    module: nn.Module, data: list[tuple[Tensor, Tensor]], batches: Sequence[Sequence[Tensor] | Tensor], lr: float
) -> dict[str, Tensor]:
    """Federated averaging as people write it."""
    states = []
    for (x, y), client in zip(data, batches, strict=True):
        local = copy.deepcopy(module)
        local.train()
        optimizer = torch.optim.SGD(local.parameters(), lr=lr)
        for rows in client:
            optimizer.zero_grad()
            loss = F.cross_entropy(local(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
        states.append(local.state_dict())
    mean = copy.deepcopy(states[0])
    for name in mean:
        for state in states[1:]:
            mean[name] += state[name]
        mean[name] = mean[name] / len(states)
    return mean


class Floor:
    """The part of softmax regression that cannot be avoided: each step gathers its samples, and computes the scores and
    the gradient as products of matrices, many clients per call, calls in `threads` threads. Pool [n, F], weights
    [C, F], places [clients, K, B].
    """

    def __init__(self, pool: Tensor, weights: Tensor, places: Tensor, chunk: int, threads: int):
        self.pool, self.weights, self.parts = pool, weights, places.split(chunk)
        self.threads = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))

    def round(self) -> None:
        """One round."""
        list(self.threads.map(self._part, self.parts))

    def _part(self, places: Tensor) -> None:
        theirs = self.weights.repeat(len(places), 1, 1)
        for rows in places.unbind(1):
            x = torch.embedding(self.pool, rows)
            torch.bmm(torch.bmm(theirs, x.transpose(1, 2)), x)
