"""pFedHN: Shamsian et al. 2021, algorithm 1, with the official code's outer optimizer.

theta_i = h(v_i; eta);  k local steps;  delta_i = theta_i - theta_i'
d eta = sum_i w_i d eta_i,  d v_i weighted by w_i, zero for clients that were not asked; both clipped together
m <- 0.9 m + g + wd params;  params <- params - lr m     over the whole table and eta, in every round
The server's parameters are [v_0, ..., v_5, eta].
"""

from __future__ import annotations

import numpy as np

from .hypernetwork import DESCRIPTOR, ETA, clipped, generate, pull, train
from .problem import SAMPLES, Fixture, Round, known

TABLE = DESCRIPTOR * len(SAMPLES)
PARAMETERS = 0.5 * np.random.Generator(np.random.Philox(12)).normal(size=TABLE + ETA)
EXAMPLE: dict = {"lr": 0.2, "clip": 2.0, "decay": 0.05, "momentum": 0.9, "weight_decay": 0.01}
MUTATIONS = {
    "sparse": "rows of clients that were not asked stand still",
    "decay_clipped": "the decay clipped with the gradient",
    "unclipped": "no clip on the server",
    "apart": "the table and eta clipped each by itself",
    "sum": "the sum over the cohort, not the mean",
    "relu": "a ReLU before the hypernetwork's last layers",
    "sign": "delta = new - old taken as a gradient",
}


def run(
    f: Fixture,
    weights: str = "uniform",
    lr: float = 1e-2,
    clip: float = 50.0,
    decay: float = 1e-3,
    momentum: float = 0.9,
    weight_decay: float = 5e-5,
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    params, models, rounds = PARAMETERS.copy(), np.tile(f.initial, (f.clients, 1)), []
    velocity, relu = np.zeros_like(params), mutation == "relu"
    for t, cohort in enumerate(f.cohorts):
        table, eta, g = params[:TABLE].reshape(-1, DESCRIPTOR), params[TABLE:], np.zeros_like(params)
        for i, share in zip(cohort, f.share(cohort, weights), strict=True):
            theta = generate(eta, table[i], relu)
            models[i] = train(f, theta, t, i, momentum, weight_decay)
            delta = theta - models[i]
            d_eta, d_v = pull(eta, table[i], -delta if mutation == "sign" else delta, relu)
            share = 1.0 if mutation == "sum" else share
            g[i * DESCRIPTOR : (i + 1) * DESCRIPTOR] += share * d_v
            g[TABLE:] += share * d_eta
        if mutation == "decay_clipped":
            g = clipped(g + decay * params, clip)
        elif mutation == "apart":
            g = np.concatenate([clipped(g[:TABLE], clip), clipped(g[TABLE:], clip)]) + decay * params
        else:
            g = (g if mutation == "unclipped" else clipped(g, clip)) + decay * params
        velocity = 0.9 * velocity + g
        moved = params - lr * velocity
        if mutation == "sparse":
            still = np.repeat([i not in cohort for i in range(f.clients)], DESCRIPTOR)
            still = np.concatenate([still, np.zeros(ETA, dtype=bool)])
            moved, velocity = np.where(still, params, moved), np.where(still, 0.9 * velocity, velocity)
        params = moved
        rounds.append(Round(params, models.copy()))
    return rounds
