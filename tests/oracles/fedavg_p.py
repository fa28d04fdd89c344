"""FedAvg-P: Chen et al. 2023 (arXiv 2309.17409), algorithm 1 (formulas reconstructed): min (1/N) sum_i f_i(x, y_i).

x_0,i = x,  y_0,i = y_i;  K times, both gradients at the same point and on the same batch          (lines 4-7)
    x_i <- x_i - g_x grad_x f_i(x_i, y_i),   y_i' <- y_i' - g_y grad_y f_i(x_i, y_i')
y_i <- y_i + e_y (y_K,i - y_i)  for i in S, others unchanged                                       (line 9)
x <- x + e_x sum_{i in S} w_i (x_K,i - x),  w = 1/m in the paper                                    (line 11)
g_x = scale_shared lr_t,  g_y = scale_personal lr_t;  e_x = outer_shared,  e_y = outer_personal.
"""

from __future__ import annotations

import numpy as np

from .problem import HEAD, Fixture, Round, known

EXAMPLE: dict = {"outer_shared": 0.8, "outer_personal": 0.6, "scale_shared": 1.0, "scale_personal": 0.5}
MUTATIONS = {
    "gauss_seidel": "y stepped first, x from the new y (FedAlt's order)",
    "one_sided": "the personal outer step left out: y_i <- y_K",
    "exchanged": "e_x and e_y exchanged",
    "inner_exchanged": "g_x and g_y exchanged",
    "averaged": "the personal part averaged over the cohort",
    "from_server": "the personal part starts at the server's (initial) values in every round",
    "undecayed": "the personal step size does not decay",
}


def run(
    f: Fixture,
    personal: np.ndarray = HEAD,
    outer_shared: float = 1.0,
    outer_personal: float = 1.0,
    scale_shared: float = 1.0,
    scale_personal: float = 1.0,
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    if mutation == "exchanged":
        outer_shared, outer_personal = outer_personal, outer_shared
    if mutation == "inner_exchanged":
        scale_shared, scale_personal = scale_personal, scale_shared
    if mutation == "one_sided":
        outer_personal = 1.0
    shared = ~personal
    server, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    for t, cohort in enumerate(f.cohorts):
        g_x, g_y = scale_shared * f.lr[t], scale_personal * f.lr[t]
        if mutation == "undecayed":
            g_y = scale_personal * f.lr[0]
        for i in cohort:
            theta = np.where(shared, server, f.initial if mutation == "from_server" else models[i])
            for k in range(f.steps(t, i)):
                g = f.gradient(theta, t, i, k)
                if mutation == "gauss_seidel":
                    g = f.gradient(np.where(personal, theta - g_y * g, theta), t, i, k) * shared + g * personal
                theta = np.where(shared, theta - g_x * g, theta - g_y * g)
            models[i] = np.where(shared, theta, models[i] + outer_personal * (theta - models[i]))
        mean = f.share(cohort, weights) @ models[cohort]
        server = np.where(shared, server + outer_shared * (mean - server), server)
        if mutation == "averaged":
            models[np.ix_(cohort, personal)] = mean[personal]
        rounds.append(Round(server, models.copy()))
    return rounds
