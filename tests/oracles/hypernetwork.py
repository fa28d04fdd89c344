"""A small hypernetwork, forward and backward by hand: one hidden layer of 4, one linear layer a parameter tensor.

z = B relu(A v + a) + b;   theta_k = H_k z + h_k  for every tensor k of the client's network, no ReLU before it.
Its parameters eta are [A, a, B, b, H_1, h_1, ..., H_4, h_4], each matrix [out, in] row by row, as torch ravels them.
"""

from __future__ import annotations

import numpy as np

from .problem import SHAPES, SIZE

WIDTH = 4
DESCRIPTOR = 2  # int(1 + 6 / 4): six clients
TENSORS = [int(np.prod(shape)) for shape in SHAPES.values()]
LAYERS = [(WIDTH, DESCRIPTOR), (WIDTH, WIDTH), *((size, WIDTH) for size in TENSORS)]
ETA = sum(out * (into + 1) for out, into in LAYERS)


def layers(eta: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """(weight, bias) of every layer."""
    made, at = [], 0
    for out, into in LAYERS:
        weight = eta[at : at + out * into].reshape(out, into)
        made.append((weight, eta[at + out * into : at + out * (into + 1)]))
        at += out * (into + 1)
    return made


def generate(eta: np.ndarray, v: np.ndarray, relu: bool = False) -> np.ndarray:
    """theta, [53]; `relu` is the wrong reading of Table 4, a ReLU after the last hidden layer too."""
    (a, a0), (b, b0), *heads = layers(eta)
    z = b @ np.maximum(a @ v + a0, 0) + b0
    z = np.maximum(z, 0) if relu else z
    return np.concatenate([h @ z + h0 for h, h0 in heads])


def pull(eta: np.ndarray, v: np.ndarray, delta: np.ndarray, relu: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(d eta, d v) of <delta, theta(eta, v)>, delta held fixed."""
    (a, a0), (b, b0), *heads = layers(eta)
    hidden = a @ v + a0
    active = np.maximum(hidden, 0)
    z = b @ active + b0
    used = np.maximum(z, 0) if relu else z
    parts, dz = [], np.zeros(WIDTH)
    for (h, _), d in zip(heads, np.split(delta, np.cumsum(TENSORS)[:-1]), strict=True):
        parts += [np.outer(d, used).ravel(), d]
        dz = dz + h.T @ d
    dz = dz * (z > 0) if relu else dz
    dh = (b.T @ dz) * (hidden > 0)
    d_eta = np.concatenate([np.outer(dh, v).ravel(), dh, np.outer(dz, active).ravel(), dz, *parts])
    assert d_eta.shape == (ETA,) and delta.shape == (SIZE,)
    return d_eta, a.T @ dh


def train(f, theta: np.ndarray, t: int, i: int, momentum: float, weight_decay: float) -> np.ndarray:
    """The client's local SGD from theta: m <- mu m + g + wd theta;  theta <- theta - lr_t m."""
    m = np.zeros_like(theta)
    for k in range(f.steps(t, i)):
        m = momentum * m + f.gradient(theta, t, i, k) + weight_decay * theta
        theta = theta - f.lr[t] * m
    return theta


def clipped(g: np.ndarray, norm: float) -> np.ndarray:
    """g scaled down to at most this norm."""
    return g * min(1.0, norm / np.linalg.norm(g))
