"""FedAvgM: Hsu et al. 2019, and the forms that other authors' codes have under its name.

D = sum_{i in S} w_i (x - y_i), m the momentum:
`hsu`         v <- m v + D;            x <- x - e v
`mean`        v <- m v + (1 - m) D;    x <- x - e v                                     (MOON's code)
`normalized`  v <- m v + D;            x <- x - e v in the first round, - e v / (1 + m) after it   (FedCOG's code)
`nesterov`    v <- m v + D;            x <- x - e (D + m v)                             (FL-bench)
`exp`         d <- D + m d;            x <- x - e d                                     (FedExP's code)
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, known

EXAMPLE: dict = {"momentum": 0.6, "server_lr": 0.9}
MUTATIONS = {
    "averaged": "`mean` where `hsu` is asked for",
    "lookahead": "`nesterov` where `hsu` is asked for",
    "inside": "the server's step size inside the momentum, applied twice",
    "sign": "the old velocity subtracted",
}


def run(
    f: Fixture,
    momentum: float = 0.9,
    form: str = "hsu",
    weights: str = "uniform",
    server_lr: float = 1.0,
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    form = {"averaged": "mean", "lookahead": "nesterov"}.get(mutation or "", form)
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    v, m = np.zeros_like(x), -momentum if mutation == "sign" else momentum
    for t, cohort in enumerate(f.cohorts):
        for i in cohort:
            y = x.copy()
            for k in range(f.steps(t, i)):
                y = y - f.lr[t] * f.gradient(y, t, i, k)
            models[i] = y
        d = f.share(cohort, weights) @ (x - models[cohort])
        v = m * v + (1 - m if form == "mean" else server_lr if mutation == "inside" else 1.0) * d
        move = {"nesterov": d + m * v, "normalized": v if t == 0 else v / (1 + m)}.get(form, v)
        x = x - server_lr * move
        rounds.append(Round(x, models.copy()))
    return rounds
