"""Scaffold-P + relaxed initialisation of the shared part; the personal part starts where the client left it.

x_0,i = x + beta (x - last_i);   inner steps, y_i and c as in scaffold_p.py;   c_i+ = c_i - c + (x_0,i - x_K,i)/(K g_x);
`paper`:  x <- x + e_x mean (x_K,i - x);   `delta`:  x <- x + e_x mean (x_K,i - x_0,i);   last_i <- x_K,i.
"""

from __future__ import annotations

import numpy as np

from .problem import HEAD, Fixture, Round, known

EXAMPLE: dict = {"beta": 0.2, "outer_shared": 0.8, "outer_personal": 0.6, "scale_shared": 1.0, "scale_personal": 0.5}
MUTATIONS = {
    "sent": "the difference taken from the sent model, x - x_K",
    "sign": "started towards the client's last shared part",
    "personal_too": "the personal part relaxed as well, away from the initial one, where the server's copy of it stays",
    "share": "c moved by 1/m, not 1/N",
    "outer_last": "the client remembers its shared part after the outer step, x + e_x (x_K - x)",
}


def run(
    f: Fixture,
    beta: float = 0.1,
    aggregate: str = "paper",
    personal: np.ndarray = HEAD,
    outer_shared: float = 1.0,
    outer_personal: float = 1.0,
    scale_shared: float = 1.0,
    scale_personal: float = 1.0,
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    assert aggregate in ("paper", "delta"), aggregate
    shared = ~personal
    server, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    c, controls, last = np.zeros_like(server), np.zeros_like(models), models.copy()
    for t, cohort in enumerate(f.cohorts):
        g_x, g_y, new, starts = scale_shared * f.lr[t], scale_personal * f.lr[t], controls.copy(), np.zeros_like(models)
        for i in cohort:
            offset = beta * (server - last[i])
            if mutation == "sign":
                offset = -offset
            starts[i] = np.where(shared, server + offset, models[i])
            if mutation == "personal_too":
                starts[i][personal] += beta * (models[i] - f.initial)[personal]
            theta, steps = starts[i].copy(), f.steps(t, i)
            for k in range(steps):
                g = f.gradient(theta, t, i, k)
                theta = np.where(shared, theta - g_x * (g - controls[i] + c), theta - g_y * g)
            begin = server if mutation == "sent" else starts[i]
            new[i] = np.where(shared, controls[i] - c + (begin - theta) / (steps * g_x), 0)
            models[i] = np.where(shared, theta, models[i] + outer_personal * (theta - models[i]))
            last[i] = server + outer_shared * (theta - server) if mutation == "outer_last" else theta
        base = server if aggregate == "paper" else starts[cohort]
        moved = f.share(cohort, weights) @ (models[cohort] - base)
        server = np.where(shared, server + outer_shared * moved, server)
        c = c + (new - controls)[cohort].sum(axis=0) / (len(cohort) if mutation == "share" else f.clients)
        controls = new
        rounds.append(Round(server, models.copy(), c, controls.copy()))
    return rounds
