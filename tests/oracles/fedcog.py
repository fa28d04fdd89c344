"""FedCOG: Ye et al. 2024, algorithm 1, equations (1) to (3), targets as in A.1.1, weights as in (3) or A.2.2.

Client i in round t, sent x, z its model as its last training ended:
d_c its samples of class c; d^_c = max d - d_c; n d^_c/sum d^ targets of class c, by largest remainder (uniform: all 1)
u <- noise;  `steps` of Adam(input_lr, 0.5, 0.9) on
    (1/n) sum_j [ CE(x; u_j, y_j) + dis (1 - JS(p(x; u_j), p(z; u_j))) ]                                         (1, 2)
y_i = x;  K times  y_i <- y_i - lr_t grad [ w CE(y_i; B) + v (1/b) sum_j KL(p(x; u_j), p(y_i; u_j)) ]               (3)
with the k-th b of the n inputs, in an order drawn once, pass after pass; w = 1, v = kd_weight, or by "counts"
w = sum d/(sum d + sum d^), v = sum d^/(sum d + sum d^). A client that never trained has no z: dis = 0.
At a temperature T the distillation is T^2 KL(p_T, q_T) of softmax(s/T), and dKL/ds = T (q_T - p_T). The order is drawn
`once`, or anew for `each_pass` after the first, by numbers drawn for it.
dCE = p - onehot;  dJS/ds_a = p_a (log(p_a/m_a) - KL(p, m))/2, and so for the other;  dKL(p, q)/ds = q - p.
"""

from __future__ import annotations

import numpy as np

from .problem import CLASSES, FEATURES, Fixture, Round, known, outputs, unravel

EXAMPLE: dict = {"kd_weight": "counts", "dis": 4.0, "samples": 21, "steps": 40, "input_lr": 0.1, "batch": 8}
STEPS = 10  # more than any client takes in a round
MUTATIONS = {
    "student_first": "KL(student || teacher) (the lemma's proof)",
    "stale": "the teacher's outputs in equation (3) on other inputs than the student's: those before they were made",
    "agree": "the disagreement's sign reversed: inputs on which both models agree",
    "stranger": "a new client's last model is the initial one, with dis",
    "reversed_js": "KL(m || p), KL(m || q) in equation (2) in place of KL(p || m), KL(q || m)",
    "alike": "targets in proportion to the client's own classes",
    "uniform": "the same number of targets for every class",
    "floor": "the remainders given to the first classes, not to the largest",
    "betas": "Adam's usual betas, 0.9 and 0.999",
    "unbiased": "Adam without its bias correction",
    "generated": "A.2.2 with the number of inputs generated, not of those that balance the classes",
    "added": "A.2.2's weight of the distillation beside a whole task loss",
    "current": "the teacher is the client's last model",
}


def draws(t: int, i: int, samples: int, batch: int = 64) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What client i draws in round t: noise [n, 6], numbers whose order is the set's, and those for further passes."""
    rng = np.random.Generator(np.random.Philox(key=1000 * t + i))
    return rng.normal(size=(samples, FEATURES)), rng.random(samples), rng.random((STEPS, min(batch, samples)))


def softmax(s: np.ndarray) -> np.ndarray:
    e = np.exp(s - s.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def by_scores(theta: np.ndarray, x: np.ndarray, ds: np.ndarray) -> np.ndarray:
    """The gradient by the parameters, [53], of a function of the scores, from its gradient by them [B, 3]."""
    p = unravel(theta)
    h = np.tanh(x @ p["0.weight"].T + p["0.bias"])
    inner = (ds @ p["2.weight"]) * (1 - h**2)
    return np.concatenate([(inner.T @ x).ravel(), inner.sum(axis=0), (ds.T @ h).ravel(), ds.sum(axis=0)])


def by_inputs(theta: np.ndarray, x: np.ndarray, ds: np.ndarray) -> np.ndarray:
    """The same by the inputs, [B, 6]."""
    p = unravel(theta)
    h = np.tanh(x @ p["0.weight"].T + p["0.bias"])
    return ((ds @ p["2.weight"]) * (1 - h**2)) @ p["0.weight"]


def targets(counts: np.ndarray, samples: int, mutation: str | None = None) -> np.ndarray:
    """How many inputs of each class: 256 for [500, 0, 400, 200, 400] are 0, 128, 26, 77, 25 (A.1.1's example)."""
    need = counts if mutation == "alike" else counts.max() - counts
    if need.sum() == 0 or mutation == "uniform":
        need = np.ones_like(counts)
    exact = [samples * int(c) for c in need]
    whole = np.array([e // int(need.sum()) for e in exact])
    rest = [e % int(need.sum()) for e in exact]
    order = sorted(range(len(rest)), key=lambda c: -rest[c]) if mutation != "floor" else range(len(rest))
    for c in list(order)[: samples - int(whole.sum())]:
        whole[c] += 1
    return whole


def gradient_of_inputs(
    x: np.ndarray, z: np.ndarray, u: np.ndarray, y: np.ndarray, dis: float, mutation: str | None = None
) -> np.ndarray:
    """The gradient of equation (1) by the inputs, [n, 6]."""
    p, q = softmax(outputs(x, u)), softmax(outputs(z, u))
    m = (p + q) / 2
    g = by_inputs(x, u, p - np.eye(CLASSES)[y])
    for theta, r in ((x, p), (z, q)):
        by_r = (
            0.5 * np.log(r / m)
            if mutation != "reversed_js"
            else 0.5 * (0.5 * np.log(m / p) + 0.5 * np.log(m / q) + 1 - m / r)
        )
        ds = r * (by_r - (r * by_r).sum(axis=1, keepdims=True))
        g = g + dis * (1 if mutation == "agree" else -1) * by_inputs(theta, u, ds)
    return g / len(u)


def generate(
    x: np.ndarray,
    z: np.ndarray,
    noise: np.ndarray,
    y: np.ndarray,
    dis: float,
    steps: int,
    lr: float,
    mutation: str | None = None,
) -> np.ndarray:
    """Adam on the inputs: m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2, u <- u - lr m^/(sqrt(v^) + 1e-8)."""
    b1, b2 = (0.9, 0.999) if mutation == "betas" else (0.5, 0.9)
    u, m, v = noise.copy(), np.zeros_like(noise), np.zeros_like(noise)
    for s in range(1, steps + 1):
        g = gradient_of_inputs(x, z, u, y, dis, mutation)
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        c1, c2 = (1, 1) if mutation == "unbiased" else (1 - b1**s, 1 - b2**s)
        u = u - lr * (m / c1) / (np.sqrt(v / c2) + 1e-8)
    return u


class Distillation:
    """Client i's generated set in round t, and the weights."""

    def __init__(
        self,
        f: Fixture,
        t: int,
        i: int,
        x: np.ndarray,
        z: np.ndarray,
        new: bool,
        kd_weight: float | str = 0.01,
        dis: float = 0.1,
        samples: int = 256,
        steps: int = 100,
        input_lr: float = 0.01,
        batch: int = 64,
        temperature: float = 1.0,
        shuffle: str = "once",
        mutation: str | None = None,
    ):
        counts = np.bincount(f.y[i], minlength=CLASSES)
        noise, order, later = draws(t, i, samples, batch)
        self.t, self.passes = temperature, [np.arange(samples)]
        for p in range(1, 1 + later.size // samples):
            again = np.argsort(later.ravel()[(p - 1) * samples : p * samples])
            self.passes.append(np.arange(samples) if shuffle == "once" else again)
        if mutation == "first_too":
            self.passes = self.passes[1:]
        y = np.repeat(np.arange(CLASSES), targets(counts, samples, mutation))[np.argsort(order)]
        used = 0.0 if new and mutation != "stranger" else dis
        self.u = generate(x, z, noise, y, used, steps, input_lr, mutation)
        teacher = outputs(z if mutation == "current" else x, noise if mutation == "stale" else self.u)
        self.p = softmax(teacher / (1 if mutation == "student_only" else self.t))
        own, lacking = counts.sum(), (counts.max() - counts).sum()
        if mutation == "generated":
            lacking = samples
        self.real, self.weight = (
            (own / (own + lacking), lacking / (own + lacking)) if kd_weight == "counts" else (1.0, kd_weight)
        )
        if mutation == "added":
            self.real = 1.0
        self.batch, self.samples, self.mutation = min(batch, samples), samples, mutation

    def gradient(self, y: np.ndarray, task: np.ndarray, k: int) -> np.ndarray:
        """The gradient of equation (3) at local step k, [53], from that of the task."""
        at = k * self.batch + np.arange(self.batch)
        rows = np.array([self.passes[a // self.samples % len(self.passes)][a % self.samples] for a in at])
        p, q = self.p[rows], softmax(outputs(y, self.u[rows]) / (1 if self.mutation == "teacher_only" else self.t))
        ds = self.t * (q - p)
        if self.mutation == "unscaled":
            ds = (q - p) / self.t
        if self.mutation == "teacher_only":
            ds = self.t**2 * (q - p)
        if self.mutation == "student_first":
            ds = q * (np.log(q / p) - (q * np.log(q / p)).sum(axis=1, keepdims=True))
        return self.real * task + self.weight * by_scores(y, self.u[rows], ds / self.batch)


def run(
    f: Fixture,
    kd_weight: float | str = 0.01,
    dis: float = 0.1,
    samples: int = 256,
    steps: int = 100,
    input_lr: float = 0.01,
    batch: int = 64,
    wait: int = 0,
    temperature: float = 1.0,
    shuffle: str = "once",
    weights: str = "uniform",
    server_lr: float = 1.0,
    mutation: str | None = None,
    mutations: dict[str, str] = MUTATIONS,
) -> list[Round]:
    known(mutation, mutations)
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    seen: set[int] = set()
    for t, cohort in enumerate(f.cohorts):
        for i in cohort:
            y, made = x.copy(), None
            if t >= wait:
                given = kd_weight, dis, samples, steps, input_lr, batch, temperature, shuffle
                made = Distillation(f, t, i, x, models[i], i not in seen, *given, mutation)
            for k in range(f.steps(t, i)):
                g = f.gradient(y, t, i, k)
                y = y - f.lr[t] * (g if made is None else made.gradient(y, g, k))
            models[i] = y
        seen |= set(cohort.tolist())
        x = x + server_lr * (f.share(cohort, weights) @ (models[cohort] - x))
        rounds.append(Round(x, models.copy()))
    return rounds
