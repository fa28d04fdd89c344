"""What FedALS's authors compute under SCAFFOLD's name, against a loop written from their source's description."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from apiece import algorithm, check, federate
from apiece.papers.fedals._work import OfTheCode
from apiece.pieces.first_gradients import FirstGradients

ROUNDS, STEPS, LENGTH, LR = 4, 3, 2, 0.3


def test_it_is_the_loop_of_the_code():
    """x <- x - lr g, then x <- x - lr (c_k - c), where c_k is the first gradient over the length, for ever."""
    generator = torch.Generator().manual_seed(0)
    data = [(torch.randn(6, 3, generator=generator), torch.arange(6) % 2) for _ in range(3)]
    model = nn.Linear(3, 2)
    start = [p.detach().double().clone() for p in model.parameters()]

    def gradient(theta, client):
        leaves = [t.clone().requires_grad_() for t in theta]
        x, y = data[client]
        return torch.autograd.grad(F.cross_entropy(x.double() @ leaves[0].T + leaves[1], y), leaves)

    first = [[g / LENGTH for g in gradient(start, k)] for k in range(3)]
    mean = [torch.stack(parts).mean(0) for parts in zip(*first, strict=True)]
    server = start
    for _ in range(ROUNDS - 1):  # the round of the first gradients moves no model
        ends = []
        for k in range(3):
            theta = server
            for _ in range(STEPS):
                theta = [
                    t - LR * g - LR * (c - m)
                    for t, g, c, m in zip(theta, gradient(theta, k), first[k], mean, strict=True)
                ]
            ends.append(theta)
        server = [torch.stack(parts).mean(0) for parts in zip(*ends, strict=True)]

    own = algorithm(OfTheCode(momentum=0.0, length=LENGTH), FirstGradients(), name="of the code")
    data_of = {"train": data, "test": data}
    settings = {"rounds": ROUNDS, "steps": STEPS, "batch": 6, "lr": LR, "optimizer": "sgd", "clients": 3}
    result = federate(model, data_of, own, cohort=1.0, precision="float64", **settings)
    for name, expected in zip(("weight", "bias"), server, strict=True):
        assert torch.allclose(result.model()[name].double(), expected, rtol=0, atol=1e-12)


def test_it_keeps_the_laws():
    assert check(algorithm(OfTheCode(), FirstGradients(), name="of the code")).changes
