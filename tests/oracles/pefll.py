"""PeFLL: Scott et al. 2024, algorithm 2, with the official code's server (Adam) and normalization of descriptors.

e_i = mean over a batch of the client's of phi(x, y) = W onehot(y) + w                        (line 6, linear embedding)
m, s = mean and deviation (n - 1) of the entries of the very first e, then frozen;   v_i = (e_i - m)/s
theta_i = h(v_i);  k local steps;  delta_i = theta_i - theta_i'                                (lines 8 to 11)
d eta_i, d v_i = delta_i pulled back through h;   d phi_i = d v_i / s pulled back through phi    (lines 12 to 15)
g = sum_i w_i (d phi_i, d eta_i), clipped;   params <- Adam(g), with decay by 2 lambda lr        (lines 17, 18)
By server=sgd these lines are the paper's: params <- (1 - 2 lr_t lambda) params - lr g, lr_t the clients' step size; by
descriptor=first | all line 5's B is the first local step's batch, or all data.
The server's parameters are [W, w, eta].
"""

from __future__ import annotations

import numpy as np

from .hypernetwork import DESCRIPTOR, ETA, clipped, generate, pull, train
from .problem import CLASSES, Fixture, Round, known

PHI = DESCRIPTOR * (CLASSES + 1)
PARAMETERS = 0.5 * np.random.Generator(np.random.Philox(11)).normal(size=PHI + ETA)
EXAMPLE: dict = {"lr": 0.04, "clip": 3.0, "momentum": 0.9, "weight_decay": 0.01, "lambda_h": 0.05, "lambda_v": 0.02}
MUTATIONS = {
    "own": "every descriptor normalized by its own mean and deviation, not v = (e - m)/s by those kept",
    "refit": "m and s taken anew from each round's first client",
    "plain": "no normalization (algorithm 2 as it stands)",
    "population": "the deviation by n, not n - 1",
    "unscaled": "d v not divided by s on its way to phi",
    "whole": "the descriptor of all data while training",
    "relu": "a ReLU before the hypernetwork's last layers (Table 4)",
    "per_step": "delta divided by the step size and the number of steps",
    "unclipped": "no clip on the server",
    "uncorrected": "Adam without bias correction (FedAdam)",
    "coupled": "the regularizers' gradient given to Adam, not decoupled",
    "sign": "delta = new - old taken as a gradient",
}


def own_batch(t: int, i: int, samples: int) -> np.ndarray:
    """The rows of the batch that client i draws for its descriptor in round t."""
    return np.random.Generator(np.random.Philox(key=7000 + 100 * t + i)).permutation(samples)[:4]


def run(
    f: Fixture,
    weights: str = "uniform",
    lr: float = 2e-4,
    clip: float | None = 50.0,
    momentum: float = 0.9,
    weight_decay: float = 5e-5,
    lambda_h: float = 0.0,
    lambda_v: float = 0.0,
    descriptor: str = "batch",
    server: str = "adam",
    mutation: str | None = None,
    mutations: dict[str, str] = MUTATIONS,
) -> list[Round]:
    known(mutation, mutations)
    params, models, rounds = PARAMETERS.copy(), np.tile(f.initial, (f.clients, 1)), []
    first, second, affine = np.zeros_like(params), np.zeros_like(params), None
    decay = 2 * np.repeat([lambda_v, lambda_h], [PHI, ETA])
    relu = mutation == "relu"
    for t, cohort in enumerate(f.cohorts):
        weight, bias = params[: DESCRIPTOR * CLASSES].reshape(DESCRIPTOR, CLASSES), params[DESCRIPTOR * CLASSES : PHI]
        eta, g = params[PHI:], np.zeros_like(params)
        affine = None if mutation == "refit" else affine
        for i, share in zip(cohort, f.share(cohort, weights), strict=True):
            begin, own = f.batches[t, i][0], own_batch(t, i, len(f.y[i]))
            rows = {"first": begin, "batch": own, "all": slice(None)}["all" if mutation == "whole" else descriptor]
            labels = np.eye(CLASSES)[f.y[i][rows]].mean(axis=0)
            e = weight @ labels + bias
            affine = affine or (e.mean(), e.std(ddof=0 if mutation == "population" else 1))
            m, s = (e.mean(), e.std(ddof=1)) if mutation == "own" else (0.0, 1.0) if mutation == "plain" else affine
            v = (e - m) / s
            theta = generate(eta, v, relu)
            models[i] = train(f, theta, t, i, momentum, weight_decay)
            delta = theta - models[i]
            delta = -delta if mutation == "sign" else delta
            delta = delta / (f.lr[t] * f.steps(t, i)) if mutation == "per_step" else delta
            d_eta, d_v = pull(eta, v, delta, relu)
            d_e = d_v if mutation == "unscaled" else d_v / s
            labels = np.eye(CLASSES)[f.y[i][begin]].mean(axis=0) if mutation == "another_batch" else labels
            g += share * np.concatenate([np.outer(d_e, labels).ravel(), d_e, d_eta])
        if server == "sgd":
            beta = {"undecayed": f.lr[0], "by_lr": lr}.get(mutation or "", f.lr[t])
            g = g + (0 if mutation == "no_decay" else beta * decay * params)
            params = params - lr * (g if clip is None else clipped(g, clip))
            rounds.append(Round(params, models.copy()))
            continue
        g = g if mutation == "unclipped" or clip is None else clipped(g, clip)
        g = g + decay * params if mutation == "coupled" else g
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g * g
        one, two = (1.0, 1.0) if mutation == "uncorrected" else (1 - 0.9 ** (t + 1), 1 - 0.999 ** (t + 1))
        step = (first / one) / (np.sqrt(second / two) + 1e-8)
        params = params - lr * (step + (0 if mutation == "coupled" else decay * params))
        rounds.append(Round(params, models.copy()))
    return rounds
