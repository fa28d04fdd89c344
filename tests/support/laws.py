"""Cohorts, the fixed points of training on quadratics, and one schedule cut into rounds in two ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from support.helpers import Given, clusters

CLIENTS = 5
ALL = [range(CLIENTS)]
SOME = [(0, 1, 2), (2, 3), (1, 4), (0, 3, 4), (1, 2), (0, 2, 4)]
STEP, STEPS = 0.1, 5


def optimum(q: Any, weights: np.ndarray) -> np.ndarray:
    """sum_i p_i A_i (w - b_i) = 0."""
    return np.linalg.solve(np.einsum("i,ijk->jk", weights, q.a), np.einsum("i,ijk,ik->j", weights, q.a, q.b))


def drifted(q: Any, weights: np.ndarray) -> np.ndarray:
    """K steps take client i to b_i + M_i (w - b_i), M_i = (I - lr A_i)^K.

    FedAvg rests where sum_i p_i (I - M_i)(w - b_i) = 0.
    """
    m = np.stack([np.eye(4) - np.linalg.matrix_power(np.eye(4) - STEP * a, STEPS) for a in q.a])
    return np.linalg.solve(np.einsum("i,ijk->jk", weights, m), np.einsum("i,ijk,ik->j", weights, m, q.b))


def schedules(p: int, rounds: int) -> tuple[Given, Given]:
    """K batches in each of p rounds, and the same pK in one."""
    rng = np.random.Generator(np.random.Philox(3))
    data = clusters()
    short = {
        (t, data.names[c]): torch.from_numpy(rng.integers(data.size(c), size=(2, 4)))
        for t in range(p * rounds)
        for c in range(CLIENTS)
    }
    long = {
        (t, name): torch.cat([short[p * t + k, name] for k in range(p)]) for t in range(rounds) for name in data.names
    }
    return Given(short), Given(long)
