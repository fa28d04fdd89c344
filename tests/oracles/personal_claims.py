"""The numerical claims of FedAvg-P and Scaffold-P (Chen et al. 2023, arXiv 2309.17409, section 5), on a toy.

f_i(x, y_i) = mean_j log(1 + exp(-l_ij (a_ij.x + b_ij.y_i))) + rho [sum_d x_d^2/(1 + x_d^2) + sum_d y_id^2/(1 + y_id^2)]

The paper's sizes and constants did not survive; these are ours. Gradients are the exact local ones plus noise in x
alone (sigma_y = 0, as in their figure 1b), written as a finite sum so that any trainer can follow it: client i's sample
j is F_i(x, y; j) = f_i(x, y) + <noise_ij, x> with sum_j noise_ij = 0, and a schedule says which j each step takes.
What is measured is the mean of ||(1/N) sum_i grad_x f_i(x^r, y_i^r)||^2 over the last rounds: the steady-state error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Settings(NamedTuple):
    """One curve."""

    algorithm: str = "fedavg_p"  # or "scaffold_p"
    sampled: int = 5  # m of the N clients in each round
    steps: int = 5  # K
    step: float = 0.2  # g_x = g_y
    total: int = 2000  # local steps in all: rounds = total // K. Keep step * total: the transient takes about 50/step
    outer_shared: float = 1.0
    outer_personal: float = 1.0
    tail: float = 0.5  # the last share of the rounds is the steady state


class Data(NamedTuple):
    """N clients of n points; all arrays float64."""

    a: np.ndarray  # shared features, [N, n, P]
    b: np.ndarray  # personal features, [N, n, Q]
    label: np.ndarray  # -1 or 1, [N, n]
    noise: np.ndarray  # the pool of noise in grad_x, [N, M, P], zero mean over M
    rho: float


class Schedule(NamedTuple):
    cohorts: np.ndarray  # [R, m]
    noise: np.ndarray  # index into the pool for every step of every sampled client, [R, m, K]


def curves(algorithm: str) -> dict[str, list[Settings]]:
    """The three figures, each one parameter moved: `steps` (K), `sampled` (m), `step` (g)."""
    base = Settings(algorithm)
    return {
        "steps": [base._replace(steps=k) for k in (2, 5, 20)],
        "sampled": [base._replace(sampled=m) for m in (2, 5, 20)],
        "step": [base._replace(step=base.step / q, total=base.total * q) for q in (4, 1)],
    }


def predicted(s: Settings, clients: int = 20) -> float:
    """The error floor up to one constant for each algorithm (heterogeneity or noise), to first order in the step size.

    A round is an SGD step of size K g on f(., Y), so its floor is proportional to K g times the variance of its mean
    gradient. Sampling m of N without replacement leaves, of the variance V between clients, V (N - m)/(m (N - 1)).
    FedAvg-P: V is the gradient dissimilarity, whatever K:  floor ~ K g (N - m)/(m (N - 1)); zero at m = N (then noise).
    Scaffold-P: noise of variance s/K is left in each client's mean of K gradients, and as much in its variate c_i,
    which cancels when all are sampled:  floor ~ K g (s/K) (1 + (N - m)/(N - 1))/m, without K.
    """
    sampling = (clients - s.sampled) / (clients - 1)
    if s.algorithm == "fedavg_p":
        return s.steps * s.step * sampling / s.sampled
    return s.step * (1 + sampling) / s.sampled


def data(
    seed: int = 0,
    clients: int = 20,
    points: int = 30,
    shared: int = 6,
    personal: int = 4,
    rho: float = 1e-2,
    sigma: float = 0.05,
    pool: int = 200,
) -> Data:
    """Every client has teachers and feature scales of its own: grad_x f_i differ even where their mean vanishes.

    Noise is N(0, sigma^2/P) in each coordinate, so that E||noise||^2 = sigma^2.
    """
    rng = np.random.Generator(np.random.Philox(seed))
    a = rng.normal(size=(clients, points, shared)) * rng.uniform(0.5, 1.5, size=(clients, 1, shared))
    b = rng.normal(size=(clients, points, personal))
    x = rng.normal(size=shared) + 1.5 * rng.normal(size=(clients, shared))
    y = rng.normal(size=(clients, personal))
    score = np.einsum("ijp,ip->ij", a, x) + np.einsum("ijq,iq->ij", b, y)
    label = np.where(score + 0.5 * rng.normal(size=score.shape) > 0, 1.0, -1.0)
    noise = rng.normal(size=(clients, pool, shared)) * sigma / np.sqrt(shared)
    return Data(a, b, label, noise - noise.mean(axis=1, keepdims=True), rho)


def schedule(settings: Settings, clients: int = 20, pool: int = 200, seed: int = 0) -> Schedule:
    """Who takes part and which noise they meet: m of N without replacement, uniformly."""
    rng = np.random.Generator(np.random.Philox(seed))
    rounds = settings.total // settings.steps
    cohorts = np.sort(rng.permuted(np.tile(np.arange(clients), (rounds, 1)), axis=1)[:, : settings.sampled], axis=1)
    return Schedule(cohorts, rng.integers(pool, size=(rounds, settings.sampled, settings.steps)))


def value(d: Data, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """f_i at (x_i, y_i) of all clients, [N]; x [N, P] or [P], y [N, Q]."""
    x = np.broadcast_to(x, (len(d.a), d.a.shape[2]))
    score = (d.a @ x[:, :, None] + d.b @ y[:, :, None])[:, :, 0]
    regularizer = (x**2 / (1 + x**2)).sum(axis=1) + (y**2 / (1 + y**2)).sum(axis=1)
    return np.logaddexp(0, -d.label * score).mean(axis=1) + d.rho * regularizer


def gradients(d: Data, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """grad_x f_i and grad_y f_i, [N, P] and [N, Q].

    (log(1 + e^(-l s)))' = -l/(1 + e^(l s));   (x^2/(1 + x^2))' = 2 x/(1 + x^2)^2.
    """
    x = np.broadcast_to(x, (len(d.a), d.a.shape[2]))
    score = (d.a @ x[:, :, None] + d.b @ y[:, :, None])[:, :, 0]
    slope = (-d.label / (1 + np.exp(d.label * score)) / d.label.shape[1])[:, None, :]
    g_x = (slope @ d.a)[:, 0] + d.rho * 2 * x / (1 + x**2) ** 2
    g_y = (slope @ d.b)[:, 0] + d.rho * 2 * y / (1 + y**2) ** 2
    return g_x, g_y


def run(d: Data, settings: Settings, plan: Schedule) -> np.ndarray:
    """||(1/N) sum_i grad_x f_i(x^r, y_i^r)||^2 before every round, [R]; everything starts at zero."""
    n, size = len(d.a), d.a.shape[2]
    x, y = np.zeros(size), np.zeros((n, d.b.shape[2]))
    c, controls, errors = np.zeros(size), np.zeros((n, size)), []
    for cohort, index in zip(plan.cohorts, plan.noise, strict=True):
        errors.append((gradients(d, x, y)[0].mean(axis=0) ** 2).sum())
        mine = Data(d.a[cohort], d.b[cohort], d.label[cohort], d.noise[cohort], d.rho)
        noise = np.take_along_axis(mine.noise, index[:, :, None], axis=1)  # [m, K, P]
        correction = c - controls[cohort]  # zero for ever in FedAvg-P
        x_i, y_i = np.tile(x, (len(cohort), 1)), y[cohort]
        for k in range(settings.steps):
            g_x, g_y = gradients(mine, x_i, y_i)
            x_i = x_i - settings.step * (g_x + noise[:, k] + correction)
            y_i = y_i - settings.step * g_y
        y[cohort] += settings.outer_personal * (y_i - y[cohort])
        if settings.algorithm == "scaffold_p":
            moved = -correction + (x - x_i) / (settings.steps * settings.step) - controls[cohort]
            controls[cohort] += moved
            c = c + moved.sum(axis=0) / n
        x = x + settings.outer_shared * (x_i - x).mean(axis=0)
    return np.array(errors)


def steady(errors: np.ndarray, settings: Settings) -> float:
    """The steady-state error (the floor): the mean over the last rounds."""
    return float(errors[-int(len(errors) * settings.tail) :].mean())


def curve(d: Data, settings: Settings, seed: int = 0) -> np.ndarray:
    """`run` on the schedule of that seed."""
    return run(d, settings, schedule(settings, len(d.a), d.noise.shape[1], seed))
