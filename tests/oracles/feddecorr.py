"""FedDecorr: Shi et al. 2023, at the scale of their code.

y_i = x;  K times  y_i <- y_i - lr_t grad [ CE(y_i; B) + beta L ],   L = (1/N) (1/(d (d - 1))) sum_{a != b} M_ab^2,
M = Z'Z,  Z = (H - mean H)/s,  s^2 = sum (H - mean H)^2/(N - 1) + 1e-8,  H the batch's features [N, d].
dM_ab = 2 M_ab/(d (d - 1) N) off the diagonal;  dZ = 2 Z dM;  dH = (dZ - mean dZ)/s - Z sum(dZ * Z)/((N - 1) s).
"""

from __future__ import annotations

import numpy as np

from .moon import back, features
from .problem import Fixture, Round, known

EXAMPLE: dict = {"beta": 0.3}
MUTATIONS = {
    "paper": "||K||_F^2/d^2 with the correlation matrix K = M/(N - 1): the paper's own scale",
    "covariance": "features centered and not divided by their deviations",
    "whole": "the sum over the batch, not divided by N",
    "biased": "the variance divided by N",
    "frozen": "mean and deviation held constant in the gradient",
}


def decorrelation(theta: np.ndarray, x: np.ndarray, mutation: str | None = None) -> np.ndarray:
    """The gradient of L, [53]."""
    h = features(theta, x)
    count, width = h.shape
    free = count if mutation == "biased" else count - 1
    s = np.sqrt(((h - h.mean(axis=0)) ** 2).sum(axis=0) / free + 1e-8)
    if mutation == "covariance":
        s = np.ones_like(s)
    z = (h - h.mean(axis=0)) / s
    m = z.T @ z
    dm = 2 * (m - np.diag(np.diag(m))) / (width * (width - 1) * count)
    if mutation == "whole":
        dm = dm * count
    if mutation == "paper":
        dm = 2 * m / (width**2 * (count - 1) ** 2)
    dz = 2 * z @ dm
    dh = (dz - dz.mean(axis=0)) / s
    if mutation not in ("covariance", "frozen"):
        dh = dh - z * (dz * z).sum(axis=0) / (free * s)
    if mutation == "frozen":
        dh = dz / s
    return back(theta, x, dh)


def run(
    f: Fixture, beta: float = 0.01, weights: str = "uniform", server_lr: float = 1.0, mutation: str | None = None
) -> list[Round]:
    known(mutation, MUTATIONS)
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    for t, cohort in enumerate(f.cohorts):
        for i in cohort:
            y = x.copy()
            for k in range(f.steps(t, i)):
                batch = f.x[i][f.batches[t, i][k]]
                y = y - f.lr[t] * (f.gradient(y, t, i, k) + beta * decorrelation(y, batch, mutation))
            models[i] = y
        x = x + server_lr * (f.share(cohort, weights) @ (models[cohort] - x))
        rounds.append(Round(x, models.copy()))
    return rounds
