"""SCAFFOLD from Karimireddy et al.'s Algorithm 1 as a plain loop, beside FedAvg, where each client has two classes.

Nothing of apiece is used but LeNet's shape. `python benchmarks/scaffold_by_hand.py FOLDER 0.05`, where FOLDER has
cifar10.npz, prints every ten rounds the test loss and how far the clients ended from their mean.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from apiece.networks.models import lenet

CLIENTS, STEPS, BATCH, ROUNDS = 5, 5, 64, 30


def vector(parts: Iterable[Tensor]) -> Tensor:
    return torch.cat([part.detach().flatten() for part in parts])


def train(file: Path, lr: float, corrected: bool) -> None:
    """Train with variates c_i and c (line 12, option II, which under plain SGD is the mean gradient), or without."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with np.load(file) as data:
        x, test = ((torch.from_numpy(data[k]).permute(0, 3, 1, 2) / 255 - 0.47) / 0.25 for k in ("x_train", "x_test"))
        y, labels = (torch.from_numpy(data[k]).long() for k in ("y_train", "y_test"))
    model, draws = lenet((3, 32, 32), 10), np.random.default_rng(0)
    parameters = list(model.parameters())
    theta = vector(parameters)
    owned = [torch.nonzero(y // 2 == k)[:, 0] for k in range(CLIENTS)]
    c, variates = torch.zeros_like(theta), [torch.zeros_like(theta)] * CLIENTS
    for t in range(1, ROUNDS + 1):
        ends, means = [], []
        for rows, variate in zip(owned, variates, strict=True):
            own, mean = theta.clone(), torch.zeros_like(theta)
            for _ in range(STEPS):
                batch = rows[torch.from_numpy(draws.integers(len(rows), size=BATCH))]
                vector_to_parameters(own, parameters)
                g = vector(torch.autograd.grad(F.cross_entropy(model(x[batch]), y[batch]), parameters))
                mean = mean + g / STEPS
                own = own - lr * (g - variate + c if corrected else g)
            ends.append(own)
            means.append(mean)
        c = c + sum(new - old for new, old in zip(means, variates, strict=True)) / CLIENTS
        variates, theta = means, torch.stack(ends).mean(0)
        if t % 10 == 0:
            vector_to_parameters(theta, parameters)
            with torch.no_grad():
                loss = F.cross_entropy(model(test[:4000]), labels[:4000])
            apart = (torch.stack(ends) - theta).norm(dim=1).mean()
            print(f"{'SCAFFOLD' if corrected else 'FedAvg'}, round {t}: loss {loss:.3f}, apart {apart:.3f}", flush=True)


if __name__ == "__main__":
    for corrected in (True, False):
        train(Path(sys.argv[1]) / "cifar10.npz", float(sys.argv[2]), corrected)
