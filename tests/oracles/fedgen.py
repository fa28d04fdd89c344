"""FedGen: Zhu et al. 2021, as in the authors' serverpFedGen.py and userpFedGen.py.

G(e, y) = L relu(n) + l,   n = g (F [e, onehot(y)] - m)/sqrt(v + 1e-5) + c: mean m and variance v of the batch while the
server trains, of what it has seen (0.9 of the old, 0.1 of the batch's, the variance unbiased) at the clients.
Client i in round t > 0, sent x: y_i = x;  K times, (X, Y) the batch, with h(y_i; z) = V z + a, e uniform noise,
    y_i <- y_i - lr_t grad [ CE(y_i; X, Y) + decay^t ( alpha (b/B) CE(h(y_i; G(e, v)), v)
                             + beta (1/B) sum_j KL(p(h(y_i; G(e_j, Y_j))), p(y_i; X_j)) ) ],   v uniform on the classes,
the first p constant; the terms of G only in the first `steps` local steps. Then, `epochs` times, on b pairs (e, y), y
uniform on the classes that the cohort has, n_ky the number of client k's samples of class y,
    g = grad_G [ (1/b) sum_j sum_k n_ky/sum_i n_iy CE(h(y_k; z_j), y_j)
                 + diversity exp( -(1/b^2) sum_ij mean|e_i - e_j|^2 mean|z_i - z_j| ) ] + weight_decay G,   z = G(e, y),
    G <- Adam(g), step size lr decay^t.
"""

from __future__ import annotations

import numpy as np

from .fedcog import by_scores, softmax
from .problem import CLASSES, HIDDEN, Fixture, Round, known, outputs, unravel

EXAMPLE: dict = {
    "alpha": 2.0,
    "beta": 3.0,
    "decay": 0.8,
    "steps": 2,
    "batch": 6,
    "noise": 3,
    "hidden": 4,
    "epochs": 4,
    "lr": 0.1,
    "weight_decay": 0.05,
    "diversity": 2.0,
}
MUTATIONS = {
    "trusting": "every client's classifier counts alike, whatever samples it has",
    "mean": "one loss of the classifiers' weighted mean scores (the paper's equation (4), with weights)",
    "alike": "no diversity",
    "early": "features of the generator before it has learnt anything",
    "unfaded": "the same weights in every round",
    "fast": "the generator's step size does not fall",
    "late": "features in all local steps",
    "attached": "the teacher learns from the student",
    "student_first": "KL(p(x), p(h(G)))",
    "batch": "the clients normalize by the batch of their own draws",
    "decoupled": "weight decay beside Adam, not in its gradient",
    "others": "features of the batch's labels, moved by one",
    "momentless": "Adam's moments forgotten each round",
}
NOISE, WIDTH = 3, 4
SHAPES = ((WIDTH, NOISE + CLASSES), (WIDTH,), (WIDTH,), (HIDDEN, WIDTH), (HIDDEN,))
PARAMETERS_OF_G = np.random.Generator(np.random.Philox(5)).normal(size=sum(int(np.prod(s)) for s in SHAPES))


def drawn(t: int, i: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """What client i draws in round t for up to 8 steps: noise [8, 2, b, 3], and uniform numbers for labels [8, b]."""
    rng = np.random.Generator(np.random.Philox(key=1000 * t + i))
    return rng.random((8, 2, batch, NOISE)), rng.random((8, batch))


def drawn_on_server(t: int, batch: int, epochs: int) -> tuple[np.ndarray, np.ndarray]:
    """The same for the server's training number t: [epochs, b, 3] and [epochs, b]."""
    rng = np.random.Generator(np.random.Philox(key=10**6 + t))
    return rng.random((epochs, batch, NOISE)), rng.random((epochs, batch))


class Generator:
    """The network G, its statistics and Adam's moments."""

    def __init__(self) -> None:
        self.theta, self.mean, self.variance = PARAMETERS_OF_G.copy(), np.zeros(WIDTH), np.ones(WIDTH)
        self.forget()

    def forget(self) -> None:
        self.m, self.v, self.s = np.zeros_like(self.theta), np.zeros_like(self.theta), 0

    def parts(self) -> list[np.ndarray]:
        ends = np.cumsum([int(np.prod(s)) for s in SHAPES])[:-1]
        return [p.reshape(s) for p, s in zip(np.split(self.theta, ends), SHAPES, strict=True)]

    def __call__(self, e: np.ndarray, y: np.ndarray, mutation: str | None = None) -> np.ndarray:
        """Features at the clients."""
        first, g, c, last, bias = self.parts()
        inner = np.concatenate([e, np.eye(CLASSES)[y]], axis=1) @ first.T
        mean, variance = (inner.mean(axis=0), inner.var(axis=0)) if mutation == "batch" else (self.mean, self.variance)
        return np.maximum(g * (inner - mean) / np.sqrt(variance + 1e-5) + c, 0) @ last.T + bias

    def train(
        self,
        e: np.ndarray,
        y: np.ndarray,
        heads: list[np.ndarray],
        trust: np.ndarray,
        diversity: float,
        lr: float,
        decay: float,
        mutation: str | None,
    ) -> None:
        """One step of Adam on a batch; `trust` [S, C] are the clients' weights."""
        first, g, c, last, bias = self.parts()
        x, count = np.concatenate([e, np.eye(CLASSES)[y]], axis=1), len(y)
        inner = x @ first.T
        mean, spread = inner.mean(axis=0), np.sqrt(inner.var(axis=0) + 1e-5)
        unit = (inner - mean) / spread
        n = g * unit + c
        z = np.maximum(n, 0) @ last.T + bias
        layers = [(unravel(h)["2.weight"], unravel(h)["2.bias"]) for h in heads]
        scores = np.stack([z @ w.T + a for w, a in layers])
        weight = trust[:, y][:, :, None]
        if mutation == "mean":
            ds = weight * (softmax((weight * scores).sum(axis=0)) - np.eye(CLASSES)[y])
        else:
            ds = weight * (np.stack([softmax(s) for s in scores]) - np.eye(CLASSES)[y])
        dz = sum(d @ w for d, (w, _) in zip(ds, layers, strict=True)) / count
        if mutation != "alike":
            far = ((e[:, None] - e) ** 2).mean(axis=2)
            gap = z[:, None] - z
            value = np.exp(-(far * np.abs(gap).mean(axis=2)).mean())
            dz = dz - diversity * value * 2 * (far[:, :, None] * np.sign(gap)).sum(axis=1) / (HIDDEN * count**2)
        dn = (dz @ last) * (n > 0)
        du = dn * g
        di = (du - du.mean(axis=0) - unit * (du * unit).mean(axis=0)) / spread
        by = [di.T @ x, (dn * unit).sum(axis=0), dn.sum(axis=0), dz.T @ np.maximum(n, 0), dz.sum(axis=0)]
        grad = np.concatenate([b.ravel() for b in by])
        grad = grad if mutation == "decoupled" else grad + decay * self.theta
        self.s, self.m, self.v = self.s + 1, 0.9 * self.m + 0.1 * grad, 0.999 * self.v + 0.001 * grad**2
        move = self.m / (1 - 0.9**self.s) / (np.sqrt(self.v / (1 - 0.999**self.s)) + 1e-8)
        self.theta = self.theta - lr * (move + (decay * self.theta if mutation == "decoupled" else 0))
        self.mean = 0.9 * self.mean + 0.1 * mean
        self.variance = 0.9 * self.variance + 0.1 * inner.var(axis=0, ddof=1)


def by_head(ds: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The gradient [53] of a function of the last layer's scores at features z, from its gradient by them."""
    return np.concatenate([np.zeros(35), (ds.T @ z).ravel(), ds.sum(axis=0)])


def run(
    f: Fixture,
    alpha: float = 10.0,
    beta: float = 10.0,
    decay: float = 0.98,
    steps: int = 20,
    batch: int = 32,
    noise: int = NOISE,
    hidden: int = WIDTH,
    epochs: int = 50,
    lr: float = 3e-4,
    weight_decay: float = 1e-2,
    diversity: float = 1.0,
    weights: str = "uniform",
    server_lr: float = 1.0,
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    assert (noise, hidden) == (NOISE, WIDTH)
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    generator, onehot = Generator(), np.eye(CLASSES)
    counts = np.stack([np.bincount(y, minlength=CLASSES) for y in f.y]).astype(float)
    for t, cohort in enumerate(f.cohorts):
        fade = 1.0 if mutation == "unfaded" else decay**t
        for i in cohort:
            y, (e, u) = x.copy(), drawn(t, i, batch)
            for k in range(f.steps(t, i)):
                g, mine = f.gradient(y, t, i, k), f.batches[t, i][k]
                if (t or mutation == "early") and (k < steps or mutation == "late"):
                    real, label, v = f.x[i][mine], f.y[i][mine], (u[k] * CLASSES).astype(int)
                    w, a = unravel(y)["2.weight"], unravel(y)["2.bias"]
                    free = generator(e[k, 0], v, mutation)
                    labels = (label + 1) % CLASSES if mutation == "others" else label
                    own = generator(e[k, 1][np.arange(len(mine)) % batch], labels, mutation)
                    p, q = softmax(own @ w.T + a), softmax(outputs(y, real))
                    ds = q - p
                    if mutation == "student_first":
                        ds = q * (np.log(q / p) - (q * np.log(q / p)).sum(axis=1, keepdims=True))
                    alike = by_scores(y, real, ds / len(mine))
                    if mutation == "attached":
                        dt = p * (np.log(p / q) - (p * np.log(p / q)).sum(axis=1, keepdims=True))
                        alike = alike + by_head(dt / len(mine), own)
                    wanted = by_head((softmax(free @ w.T + a) - onehot[v]) / len(mine), free)
                    g = g + fade * (alpha * wanted + beta * alike)
                y = y - f.lr[t] * g
            models[i] = y
        x = x + server_lr * (f.share(cohort, weights) @ (models[cohort] - x))
        there = np.flatnonzero(counts[cohort].sum(axis=0))
        trust = counts[cohort] / np.maximum(counts[cohort].sum(axis=0), 1)
        trust = np.full_like(trust, 1 / len(cohort)) if mutation == "trusting" else trust
        if mutation == "momentless":
            generator.forget()
        step = lr * (1.0 if mutation == "fast" else decay**t)
        for e, u in zip(*drawn_on_server(t, batch, epochs), strict=True):
            y = there[(u * len(there)).astype(int)]
            generator.train(e, y, list(models[cohort]), trust, diversity, step, weight_decay, mutation)
        rounds.append(Round(x, models.copy()))
    return rounds
