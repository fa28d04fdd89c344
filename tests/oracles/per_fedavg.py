"""Per-FedAvg: Fallah et al. 2020, algorithm 1, its first-order and Hessian-free forms (section 5).

Where `batches` is parts, batch k is cut in order into B1, B2 (halves; first_order) or B1, B2, B3 (thirds, rounded down;
hessian_free); where it is whole, B2 is batch k, and B1 and B3 have its size and are taken in turn, B1, B3, B1, ..., of
passes over all of the client's samples in an order that is drawn for the round:
    w' = w - alpha g(w; B1);   v = g(w'; B2);
    hessian_free: v <- v - alpha (g(w + delta v; B3) - g(w - delta v; B3)) / (2 delta);
    w <- w - lr_t v.
Every client predicts with x after `epochs` steps of size alpha on all its training samples.
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, full_batches, gradient, in_turn, known, probe

EXAMPLE: dict = {"alpha": 0.4, "variant": "hessian_free", "delta": 1e-3, "epochs": 2, "batch": 64, "batches": "whole"}
MUTATIONS = {
    "parts": "B1, B2 and B3 as thirds of one batch",
    "same_whole": "B1 and B3 the same in every step",
    "same_third": "B3 is B1",
    "same_part": "both gradients on B1",
    "from_inner": "the outer step taken from w'",
    "first_order": "the Hessian's term left out",
    "sign": "the Hessian's term added",
    "undivided": "the difference divided by delta, not by 2 delta",
    "along_inner": "the Hessian along g(w; B1), not along v",
    "not_adapted": "predicts with x itself",
    "outer_size": "adapted by steps of lr_t, not alpha",
}


def run(
    f: Fixture,
    alpha: float = 0.01,
    variant: str = "first_order",
    delta: float = 1e-3,
    epochs: int = 1,
    batch: int = 64,
    batches: str = "parts",
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    assert variant in ("first_order", "hessian_free") and batch >= f.samples.max()
    free = variant == "hessian_free"
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    for t, cohort in enumerate(f.cohorts):
        for i in cohort:
            w = x.copy()
            for k in range(f.steps(t, i)):
                index = f.batches[t, i][k]
                count, of = len(index), 3 if free else 2
                b = [index[p * count // of : (p + 1) * count // of] for p in range(of)]
                if batches == "whole" and mutation != "parts":
                    first = 0 if mutation == "same_whole" else (of - 1) * k
                    b = [in_turn(f, t, i, first, count), index, in_turn(f, t, i, first + 1, count)]
                b[-1] = b[0] if mutation == "same_third" else b[-1]

                def g(theta: np.ndarray, rows: np.ndarray, i: int = i) -> np.ndarray:
                    return gradient(theta, f.x[i][rows], f.y[i][rows])

                inner = g(w, b[0])
                ahead = w - alpha * inner
                v = g(ahead, b[0] if mutation == "same_part" else b[1])
                if free and mutation != "first_order":
                    way = inner if mutation == "along_inner" else v
                    hessian = (g(w + delta * way, b[2]) - g(w - delta * way, b[2])) / (2 * delta)
                    hessian = hessian * {"sign": -1.0, "undivided": 2.0}.get(mutation or "", 1.0)
                    v = v - alpha * hessian
                w = (ahead if mutation == "from_inner" else w) - f.lr[t] * v
            models[i] = w
        x = f.share(cohort, weights) @ models[cohort]
        steps, size = 0 if mutation == "not_adapted" else epochs, f.lr[t] if mutation == "outer_size" else alpha
        adapted = [full_batches(f, i, x, steps, size) for i in range(f.clients)]
        rounds.append(Round(x, models.copy(), scores=np.stack([probe(theta) for theta in adapted])))
    return rounds
