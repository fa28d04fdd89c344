"""How well a difference of gradients estimates a Hessian's product in a network with kinks.

One client with two classes of Fashion-MNIST descends on a LeNet as in Per-FedAvg's Hessian-free variant, but with the
exact product in place of the estimate: theta <- theta - lr (v - alpha H v), H by automatic differentiation. Every
sixth step compares the estimate (g(theta + delta v) - g(theta - delta v)) / (2 delta) with H v.

    python examples/curvature.py [--data-dir FOLDER]
"""

from __future__ import annotations

import argparse
import os

import torch
from torch.autograd.functional import vhp

from apiece.algebra.optim import clip
from apiece.data.federation import tensors
from apiece.data.sources import load
from apiece.engine.stepping import Loop
from apiece.networks import models
from apiece.vector.space import Space
from apiece.vector.task import Passes, Task, TaskView

STEPS, EVERY, BATCH, LR, ALPHA, CLIP, CLASSES = 60, 6, 32, 0.1, 0.01, 10.0, (0, 1)


def compare(dtype: torch.dtype, data_dir: str | None) -> None:
    """Print the errors of the estimate along one descent in this number format."""
    data = load("fashion-mnist", data_dir)
    mine = torch.from_numpy(data.y_train == CLASSES[0]) | torch.from_numpy(data.y_train == CLASSES[1])
    rows = torch.nonzero(mine).flatten()[:3000]
    x, y = tensors(data, data.x_train[rows.numpy()], dtype), torch.from_numpy(data.y_train)[rows].long()
    torch.manual_seed(0)
    space = Space(models.lenet(tuple(x.shape[1:]), 10), dtype=dtype)
    theta, none, draws = space.ravel(), space.ravel_buffers(), torch.Generator().manual_seed(0)
    task = Task(space)
    gradient = TaskView(task, none, Loop().differentiate).gradient

    for step in range(STEPS + 1):
        one, two, three = ((x[p], y[p]) for p in torch.randint(len(x), (BATCH,), generator=draws).tensor_split(3))
        v = clip(gradient(theta - ALPHA * gradient(theta, one), two), CLIP)
        exact = vhp(lambda at, batch=three: Passes(task, none).loss(at, batch), theta, v)[1]
        if step % EVERY == 0:
            told = [f"{float(exact.norm() / v.norm()):6.1f}"]
            for delta in (1e-3, 1e-1):
                ahead, behind = (gradient(theta + side * v, three) for side in (delta, -delta))
                error = ((ahead - behind) / (2 * delta) - exact).norm() / exact.norm()
                told.append(f"{float(error):5.2f}")
            print(f"{str(dtype).removeprefix('torch.'):<8}{step:>5}   |Hv|/|v| {told[0]}   error {told[1]} {told[2]}")
        theta = theta - LR * (v - ALPHA * exact)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default=os.environ.get("APIECE_DATA"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for dtype in (torch.float32, torch.float64):
        compare(dtype, asked.data_dir)
