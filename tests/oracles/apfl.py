"""APFL: Deng et al. 2020, algorithm 1, alpha learnt in the first local step of a round , or fixed.

In every local step, all from the same point and batch, with m = a_i v_i + (1 - a_i) w_i,
    w_i <- w_i - lr_t g_i(w_i),   v_i <- v_i - lr_t a_i g_i(m)   (the gradient with respect to v_i),
    first step, adaptive:  a_i <- min(1, max(0, a_i - lr_t <v_i - w_i, g_i(m)>)).
w_i starts at the server's x, which averages w_i.  Client i predicts with a_i v_i + (1 - a_i) x,
or x if it was never sampled.
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, known, probe

EXAMPLE: dict = {"alpha": 0.6, "rule": "adaptive"}
MUTATIONS = {
    "whole_gradient": "v_i moved by g_i(m), without the factor a_i",
    "at_own": "v_i moved by its gradient at v_i",
    "every_step": "a_i learnt in every local step",
    "sign": "a_i moved up its gradient",
    "never": "a_i not learnt",
    "sent": "mixed with the sent model, not with w_i as it moves",
    "after": "the mixture taken after w_i's step",
    "own_only": "predicts with v_i",
}


def run(
    f: Fixture, alpha: float = 0.5, rule: str = "adaptive", weights: str = "uniform", mutation: str | None = None
) -> list[Round]:
    known(mutation, MUTATIONS)
    assert rule in ("adaptive", "fixed"), rule
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    own, share, met = models.copy(), np.full(f.clients, alpha), np.zeros(f.clients, dtype=bool)
    for t, cohort in enumerate(f.cohorts):
        for i in cohort:
            w, v, a = x.copy(), own[i], share[i]
            for k in range(f.steps(t, i)):
                after = w - f.lr[t] * f.gradient(w, t, i, k)
                beside = {"sent": x, "after": after}.get(mutation or "", w)
                mixed = f.gradient(v if mutation == "at_own" else a * v + (1 - a) * beside, t, i, k)
                factor = 1.0 if mutation == "whole_gradient" else a
                learns = rule == "adaptive" and (k == 0 or mutation == "every_step") and mutation != "never"
                slope = (v - beside) @ mixed * (-1 if mutation == "sign" else 1)
                v = v - f.lr[t] * factor * mixed
                w, a = after, np.clip(a - f.lr[t] * slope, 0, 1) if learns else a
            models[i], own[i], share[i], met[i] = w, v, a, True
        x = f.share(cohort, weights) @ models[cohort]
        part = np.where(met, 1.0 if mutation == "own_only" else share, 0.0)[:, None]
        rounds.append(Round(x, models.copy(), scores=np.stack([probe(p) for p in part * own + (1 - part) * x])))
    return rounds
