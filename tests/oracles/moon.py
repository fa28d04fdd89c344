"""MOON: Li, He and Song 2021, equations (3) and (4), algorithm 1, without its projection head.

y_i = x;  K times  y_i <- y_i - lr_t grad [ CE(y_i; B) + mu mean_B l_con ],   z = features of y_i on the batch,
l_con = -log( e^{cos(z, z_glob)/T} / (e^{cos(z, z_glob)/T} + e^{cos(z, z_prev)/T}) ),
z_glob by x, z_prev by where client i's last training ended; a client that never trained has no z_prev and no contrast.
grad_z cos(z, a) = (a/|a| - cos(z, a) z/|z|)/|z|;  features h = tanh(W x + b), so that dW = (dh (1 - h^2))' x.
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, known, unravel

EXAMPLE: dict = {"mu": 2.0, "temperature": 0.5}
MUTATIONS = {
    "swapped": "towards the last model, away from the global one",
    "temperature": "the cosines not divided by T",
    "first_global": "equation (3) for a new client too, with z_prev by the initial model",
    "current": "away from the model as training began, which is the global one",
    "dot": "inner products, not cosines",
    "scores": "the contrast of the outputs, not of the last layer's input",
}


def features(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The last layer's input, [B, 5]."""
    p = unravel(theta)
    return np.tanh(x @ p["0.weight"].T + p["0.bias"])


def back(theta: np.ndarray, x: np.ndarray, dh: np.ndarray) -> np.ndarray:
    """The gradient [53] of a function of the features, from its gradient by the features [B, 5]."""
    p = unravel(theta)
    inner = dh * (1 - features(theta, x) ** 2)
    return np.concatenate([(inner.T @ x).ravel(), inner.sum(axis=0), np.zeros(p["2.weight"].size + p["2.bias"].size)])


def cosine(z: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cosines of the rows, [B, 1], and their gradients by z, [B, F]."""
    length, other = np.linalg.norm(z, axis=1, keepdims=True), np.linalg.norm(a, axis=1, keepdims=True)
    cos = (z * a).sum(axis=1, keepdims=True) / (length * other)
    return cos, (a / other - cos * z / length) / length


def contrast(
    theta: np.ndarray, near: np.ndarray, far: np.ndarray, x: np.ndarray, temperature: float, mutation: str | None
) -> np.ndarray:
    """The gradient of the mean contrast, [53]."""
    if mutation == "scores":
        p = unravel(theta)
        z, a, b = (features(m, x) @ unravel(m)["2.weight"].T + unravel(m)["2.bias"] for m in (theta, near, far))
    else:
        z, a, b = (features(m, x) for m in (theta, near, far))
    (cos_a, da), (cos_b, db) = cosine(z, a), cosine(z, b)
    if mutation == "dot":
        cos_a, cos_b, da, db = (z * a).sum(axis=1, keepdims=True), (z * b).sum(axis=1, keepdims=True), a, b
    gap = (cos_b - cos_a) / temperature
    dz = (db - da) / (1 + np.exp(-gap)) / temperature / len(x)
    if mutation != "scores":
        return back(theta, x, dz)
    lower = back(theta, x, dz @ p["2.weight"])
    lower[35:] = np.concatenate([(dz.T @ features(theta, x)).ravel(), dz.sum(axis=0)])
    return lower


def run(
    f: Fixture,
    mu: float = 1.0,
    temperature: float = 0.5,
    weights: str = "uniform",
    server_lr: float = 1.0,
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    seen: set[int] = set()
    t_used = 1.0 if mutation == "temperature" else temperature
    for t, cohort in enumerate(f.cohorts):
        for i in cohort:
            y, near, far = x.copy(), x, models[i]
            if mutation == "swapped":
                near, far = far, near
            if mutation == "current":
                far = x
            for k in range(f.steps(t, i)):
                g = f.gradient(y, t, i, k)
                if i in seen or mutation == "first_global":
                    other = f.initial if i not in seen else far
                    g = g + mu * contrast(y, near, other, f.x[i][f.batches[t, i][k]], t_used, mutation)
                y = y - f.lr[t] * g
            models[i] = y
        seen |= set(cohort.tolist())
        x = x + server_lr * (f.share(cohort, weights) @ (models[cohort] - x))
        rounds.append(Round(x, models.copy()))
    return rounds
