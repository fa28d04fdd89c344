"""A generator of models that is as small as it can be: a linear layer writes the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from apiece.algebra.generators import Pipeline

SIZE, WIDTH, FEATURES = 53, 3, 6  # of the model, the descriptor, a sample
LR, STEPS, COHORT = 0.2, 3, (0, 2, 3, 4)
SPLIT = WIDTH * FEATURES + WIDTH


def embed(phi: Tensor, batch: Any) -> Tensor:
    """v = the batch's mean of tanh(W x + b)."""
    return torch.tanh(batch[0] @ phi[:-WIDTH].view(FEATURES, WIDTH) + phi[-WIDTH:]).mean(0)


def generate(eta: Tensor, v: Tensor) -> Tensor:
    """theta = U tanh(v) + u: a linear hypernetwork."""
    return eta[:-SIZE].view(SIZE, WIDTH) @ torch.tanh(v) + eta[-SIZE:]


def pipeline() -> Pipeline:
    rng = np.random.Generator(np.random.Philox(5))
    return Pipeline(embed, generate, torch.from_numpy(0.5 * rng.normal(size=SPLIT + SIZE * WIDTH + SIZE)), SPLIT)
