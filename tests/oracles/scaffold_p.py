"""Scaffold-P: Chen et al. 2023 (arXiv 2309.17409), algorithm 2 (formulas reconstructed): control on x alone.

x_i <- x_i - g_x (grad_x f_i(x_i, y_i) - c_i + c)  (line 6);   y_i, outer steps as in fedavg_p.py  (lines 7, 9, 12)
c_i+ = c_i - c + (x - x_K,i)/(K g_x)  (line 10);   c <- c + (1/N) sum_{i in S} (c_i+ - c_i)  (line 13).  Both are
0 at first; by init_control=grad round 0 makes c_i = (1/K) sum_k grad_x f_i(x, y_i; batch k) and c = mean c_i over all
N, and nothing else.
"""

from __future__ import annotations

import numpy as np

from .problem import HEAD, Fixture, Round, known

EXAMPLE: dict = {"outer_shared": 0.8, "outer_personal": 0.6, "scale_shared": 1.0, "scale_personal": 0.5}
MUTATIONS = {
    "sign": "the correction reversed: g + c_i - c",
    "share": "c moved by 1/m, not 1/N",
    "undecayed": "the difference divided by K times the inner step of round 0",
    "personal_too": "control variates on the personal part as well",
    "outer_in_variate": "the difference divided by K g_x e_x",
    "gauss_seidel": "y stepped first, x from the new y",
    "one_sided": "the personal outer step left out: y_i <- y_K",
}


def run(
    f: Fixture,
    personal: np.ndarray = HEAD,
    outer_shared: float = 1.0,
    outer_personal: float = 1.0,
    scale_shared: float = 1.0,
    scale_personal: float = 1.0,
    init_control: str = "zero",
    weights: str = "uniform",
    mutation: str | None = None,
    mutations: dict[str, str] = MUTATIONS,
) -> list[Round]:
    known(mutation, mutations)
    if mutation == "one_sided":
        outer_personal = 1.0
    shared = ~personal
    server, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    c, controls = np.zeros_like(server), np.zeros_like(models)  # zero for ever on the personal part
    if init_control == "grad":
        controls = first_gradients(f, shared, mutation)
        c = np.zeros_like(c) if mutation == "clients_only" else controls.mean(axis=0)
        rounds.append(Round(server, models.copy(), c, controls.copy()))
    for t, cohort in list(enumerate(f.cohorts))[len(rounds) :]:
        g_x, g_y, new = scale_shared * f.lr[t], scale_personal * f.lr[t], controls.copy()
        for i in cohort:
            begin = np.where(shared, server, models[i])
            theta, steps = begin, f.steps(t, i)
            for k in range(steps):
                g = f.gradient(theta, t, i, k)
                if mutation == "gauss_seidel":
                    g = f.gradient(np.where(personal, theta - g_y * g, theta), t, i, k) * shared + g * personal
                correction = controls[i] - c if mutation == "sign" else c - controls[i]
                theta = theta - np.where(shared, g_x, g_y) * (g + correction)
            divisor = steps * np.where(shared, g_x, g_y)
            if mutation == "undecayed":
                divisor = steps * scale_shared * f.lr[0]
            if mutation == "outer_in_variate":
                divisor = divisor * outer_shared
            new[i] = controls[i] - c + (begin - theta) / divisor
            if mutation != "personal_too":
                new[i][personal] = 0
            models[i] = np.where(shared, theta, models[i] + outer_personal * (theta - models[i]))
        mean = f.share(cohort, weights) @ models[cohort]
        server = np.where(shared, server + outer_shared * (mean - server), server)
        c = c + (new - controls)[cohort].sum(axis=0) / (len(cohort) if mutation == "share" else f.clients)
        controls = new
        rounds.append(Round(server, models.copy(), c, controls.copy()))
    return rounds


def first_gradients(f: Fixture, shared: np.ndarray, mutation: str | None = None) -> np.ndarray:
    """c_i before the first step of all: the mean of the first round's gradients at the initial model, [N, 53]."""
    controls = np.zeros((f.clients, len(f.initial)))
    for i in f.cohorts[0] if mutation == "only_cohort" else range(f.clients):
        theta = f.initial.copy()
        for k in range(f.steps(0, i)):
            g = f.gradient(theta, 0, i, k)
            controls[i] += np.where(shared, g, 0) / f.steps(0, i)
            if mutation == "along":
                theta = theta - f.lr[0] * g
    return controls
