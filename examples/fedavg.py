"""Federated averaging as a plain loop: read it first. It needs no engine, and gives bit for bit the engine's numbers.

In every round the server sends its model w to a few clients, and each takes K steps of SGD on its own samples. The
server takes the mean of their models, weighted by their numbers of samples (McMahan et al. 2017, Algorithm 1):

    client i   w_i <- w;   K times:  w_i <- w_i - lr * gradient of the loss at w_i on the next batch
    server     w   <- w - sum_i n_i (w - w_i) / sum_i n_i

    python examples/fedavg.py
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from apiece import Space, Work, load, make_split
from apiece.data.federation import federation
from apiece.engine.cohorts import cohort

CLIENTS, COHORT, ROUNDS, STEPS, BATCH, LR, SPLIT, SEED = 20, 10, 30, 10, 32, 0.1, "dirichlet(0.3)", 0


def perceptron() -> nn.Module:
    """Any module will do; this one is for images of 8 x 8 pixels and ten digits."""
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def rounds(module: nn.Module) -> Iterator[tuple[Tensor, float]]:
    """The server's model after each round, one vector [D], and its accuracy on the test set."""
    data = load("digits")
    clients = federation(data, make_split(data, SPLIT, CLIENTS, SEED))
    (x, y), (x_test, y_test) = clients.pool, clients.test_pool  # one pool of samples; clients have rows of it
    space, work = Space(module), Work(STEPS, batch=BATCH)
    model, buffers = space.ravel(), space.ravel_buffers()  # the module's parameters as one vector; it has no buffers

    def trained(w: Tensor, batches: list[Tensor]) -> Tensor:
        """The end of local training from w [D]: one step on each of these batches, which are rows of the pool."""
        for rows in batches:
            w = w.detach().requires_grad_()
            loss = cross_entropy(space.outputs(w, x[rows], buffers), y[rows])
            (gradient,) = torch.autograd.grad(loss, w)
            w = w.detach().sub(gradient, alpha=LR)  # w - lr * gradient, rounded once
        return w

    for t in range(ROUNDS):
        moved, samples = torch.zeros(space.size, dtype=torch.float64), 0
        for client in cohort(SEED, t, clients.names, clients.participants, COHORT):
            own = clients.train[client]  # the client's rows of the pool
            drawn = work.batches(SEED, t, clients.names[client], len(own), STEPS)  # [K, B], rows of its own
            moved += len(own) * (model - trained(model, [own[rows] for rows in drawn])).double()
            samples += len(own)
        model = model - (moved / samples).float()
        with torch.no_grad():
            right = space.outputs(model, x_test, buffers).argmax(1) == y_test
        yield model, float(right.double().mean())


if __name__ == "__main__":
    torch.set_num_threads(1)  # the tensors are small
    for t, (_, accuracy) in enumerate(rounds(perceptron()), start=1):
        print(f"round {t:2}: accuracy {accuracy:.3f}")
