"""kNN-Per: Marfoq et al. 2022, over FedAvg, at the server's model x and its hidden layer h(.) in R^5.

d_j = ||h(q) - h(x_j)||^2 for client i's training samples j;   p_knn(c) ~ sum over the `count` nearest with y_j = c of
exp(-d_j / (5 scale));   p = a p_knn + (1 - a) softmax(s(q)).  a = None: of 0, .1, ..., 1 the first that is right most
often on the client's training samples, each with its neighbors among the others.  The scores are log p.
"""

from __future__ import annotations

import numpy as np

from . import fedavg
from .problem import CLASSES, HIDDEN, PROBE, Fixture, Round, known, outputs, unravel

EXAMPLE: dict = {"count": 3, "scale": 0.3, "weight": None}
MUTATIONS = {
    "unsquared": "exp of the distance, not of its square",
    "no_dimension": "d / scale, without the number of features",
    "logits": "mixed with the scores, not with their softmax",
    "all": "every sample counts, not the nearest alone",
    "with_itself": "a training sample is its own neighbor when the weight is chosen",
    "inputs": "distances of inputs, not of features",
}


def hidden(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
    p = unravel(theta)
    return np.tanh(x @ p["0.weight"].T + p["0.bias"])


def softmax(s: np.ndarray) -> np.ndarray:
    e = np.exp(s - s.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def run(
    f: Fixture,
    count: int = 10,
    scale: float = 100.0,
    weight: float | None = None,
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    rounds = []
    for r in fedavg.run(f, weights=weights):
        theta, scores = r.server, []
        embed = (lambda x: x) if mutation == "inputs" else lambda x, theta=theta: hidden(theta, x)

        def model(x: np.ndarray, theta: np.ndarray = theta) -> np.ndarray:
            return outputs(theta, x) if mutation == "logits" else softmax(outputs(theta, x))

        def knn(q: np.ndarray, x: np.ndarray, y: np.ndarray, embed=embed) -> np.ndarray:
            d = ((embed(q)[None] - embed(x)) ** 2).sum(axis=1)
            near = np.argsort(d)[: len(y) if mutation == "all" else count]
            d = np.sqrt(d) if mutation == "unsquared" else d
            e = np.exp(-d[near] / (scale * (1 if mutation == "no_dimension" else HIDDEN)))
            return np.array([e[y[near] == c].sum() for c in range(CLASSES)]) / e.sum()

        for x, y in zip(f.x, f.y, strict=True):
            a = weight
            if a is None:
                others = [np.arange(len(y)) != j for j in range(len(y))]
                others = [np.ones(len(y), dtype=bool)] * len(y) if mutation == "with_itself" else others
                near = np.stack([knn(x[j], x[o], y[o]) for j, o in enumerate(others)])
                right = [((a * near + (1 - a) * model(x)).argmax(axis=1) == y).sum() for a in np.arange(11) / 10]
                a = np.argmax(right) / 10
            near = np.stack([knn(q, x, y) for q in PROBE])
            scores.append(np.log(np.maximum(a * near + (1 - a) * model(PROBE), np.finfo(float).tiny)))
        rounds.append(r._replace(scores=np.stack(scores)))
    return rounds
