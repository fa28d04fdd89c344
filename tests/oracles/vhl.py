"""VHL: Tang et al. 2022, with the loss of the authors' normal_trainer.py, on Gaussian noise.

The last layer has 2 C rows, scores V h + a, h = tanh(W x + b); n points u_j = m_v + 0.5 e_j of class v = j mod C, the
same for everyone, m and e standard normal. y_i = x;  K times, (X, Y) the batch, (U, v) the k-th `batch` points in an
order of the round's,
    y_i <- y_i - lr_t grad [ CE(X, Y) + alpha CE(U, C + v) + [k < epochs ceil(n_i/B)] (align S(h(X) + h(U), Y + v)
                             + among S(h(U), v)) ],           h(U) constant in the first S, + of sets,
S(z, y) = -(1/N) sum_i 1/|P_i| sum_{j in P_i} (s_ij - log sum_{k != i} e^{s_ik}),  s_ij = <z_i/|z_i|, z_j/|z_j|>/0.07,
P_i = {j != i: y_j = y_i}, 0 where it is empty. dS/ds_ij = -[j in P_i]/(N |P_i|) + softmax_ij [P_i not empty]/N.
"""

from __future__ import annotations

import numpy as np

from .fedcog import softmax
from .problem import CLASSES, FEATURES, HIDDEN, PROBE, SIZE, Fixture, Round, known

EXAMPLE: dict = {"alpha": 0.8, "align": 0.5, "among": 0.3, "epochs": 1, "samples": 21, "batch": 5}
MUTATIONS = {
    "attached": "the features are drawn to one another, the noise's too",
    "always": "aligned in all local epochs",
    "narrow": "the client's samples scored against their own classes alone",
    "shared": "the noise's classes are the task's (no extra ones)",
    "mismatched": "class c is drawn to the noise of class c + 1",
    "length": "features of any length",
    "cold": "temperature 1",
    "itself": "every sample also in its own denominator",
    "real_only": "only the client's samples are anchors",
    "pooled": "one mean over the batch and the noise, not a sum of two",
    "apart": "the noise's features not contrasted among themselves",
    "own": "every client draws noise of its own",
}
AT = HIDDEN * FEATURES + HIDDEN  # where the last layer begins
EXTRA = 0.3 * np.random.Generator(np.random.Philox(11)).normal(size=(CLASSES, HIDDEN + 1))


def widened(theta: np.ndarray) -> np.ndarray:
    """The vector [71] with the extra classes' rows, from that without, [53]."""
    rows, bias = theta[AT : SIZE - CLASSES], theta[SIZE - CLASSES :]
    return np.concatenate([theta[:AT], rows, EXTRA[:, :-1].ravel(), bias, EXTRA[:, -1]])


def virtual(samples: int, who: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Standard normal numbers, the same for everyone: m [C, 6] and e [n, 6]."""
    rng = np.random.Generator(np.random.Philox(key=77 + who))
    return rng.normal(size=(CLASSES, FEATURES)), rng.normal(size=(samples, FEATURES))


def order(t: int, i: int, samples: int) -> np.ndarray:
    """Numbers whose order is that of the points, for client i in round t."""
    return np.random.Generator(np.random.Philox(key=1000 * t + i)).random(samples)


def parts(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """W, b, V [2 C, 5], a."""
    w, b = theta[: HIDDEN * FEATURES].reshape(HIDDEN, FEATURES), theta[HIDDEN * FEATURES : AT]
    return w, b, theta[AT : -2 * CLASSES].reshape(2 * CLASSES, HIDDEN), theta[-2 * CLASSES :]


def back(theta: np.ndarray, x: np.ndarray, ds: np.ndarray, dh: np.ndarray) -> np.ndarray:
    """The gradient [71] from that by the scores [B, 2 C] and by the features [B, 5]."""
    w, b, v, _ = parts(theta)
    h = np.tanh(x @ w.T + b)
    inner = (dh + ds @ v) * (1 - h**2)
    return np.concatenate([(inner.T @ x).ravel(), inner.sum(axis=0), (ds.T @ h).ravel(), ds.sum(axis=0)])


def contrast(z: np.ndarray, y: np.ndarray, mutation: str | None, real: int) -> np.ndarray:
    """The gradient of S by the features, [N, 5]; `real` of them are the client's."""
    count, temperature = len(z), 1.0 if mutation == "cold" else 0.07
    length = np.ones((count, 1)) if mutation == "length" else np.linalg.norm(z, axis=1, keepdims=True)
    unit, alone = z / length, np.eye(count, dtype=bool)
    s = unit @ unit.T / temperature
    e = np.exp(s - s.max(axis=1, keepdims=True))
    e = e if mutation == "itself" else np.where(alone, 0.0, e)
    alike = (y[:, None] == y) & ~alone
    some = alike.sum(axis=1, keepdims=True)
    g = np.where(some > 0, e / e.sum(axis=1, keepdims=True) - alike / np.maximum(some, 1), 0.0) / count
    if mutation == "real_only":
        g = np.where(np.arange(count)[:, None] < real, g, 0.0) * count / real
    du = (g + g.T) @ unit / temperature
    return du if mutation == "length" else (du - (du * unit).sum(axis=1, keepdims=True) * unit) / length


def run(
    f: Fixture,
    alpha: float = 1.0,
    align: float = 1.0,
    among: float = 0.1,
    epochs: int = 5,
    samples: int = 2000,
    batch: int = 128,
    weights: str = "uniform",
    server_lr: float = 1.0,
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    x, labels, rounds = widened(f.initial), np.arange(samples) % CLASSES, []
    models, size = np.tile(x, (f.clients, 1)), min(batch, samples)
    shift = 0 if mutation == "shared" else CLASSES
    onehot = np.eye(2 * CLASSES)
    for t, cohort in enumerate(f.cohorts):
        for i in cohort:
            y, ranked = x.copy(), np.argsort(order(t, i, samples), kind="stable")
            middles, spread = virtual(samples, i if mutation == "own" else 0)
            for k in range(f.steps(t, i)):
                mine = f.batches[t, i][k]
                real, label = f.x[i][mine], f.y[i][mine]
                rows = ranked[(k * size + np.arange(size)) % samples]
                noise, v = middles[labels[rows]] + 0.5 * spread[rows], labels[rows]
                w, b, big, a = parts(y)
                near, far = np.tanh(real @ w.T + b), np.tanh(noise @ w.T + b)
                q, p = (softmax(h @ big.T + a) for h in (near, far))
                if mutation == "narrow":
                    q = np.pad(softmax(near @ big[:CLASSES].T + a[:CLASSES]), ((0, 0), (0, CLASSES)))
                ds, dn = (q - onehot[label]) / len(real), alpha * (p - onehot[shift + v]) / len(noise)
                if mutation == "pooled":
                    ds, dn = (part / (len(real) + len(noise)) for part in (q - onehot[label], p - onehot[shift + v]))
                dh, df = np.zeros_like(near), np.zeros_like(far)
                if k < epochs * -(-len(f.y[i]) // len(mine)) or mutation == "always":
                    met = np.concatenate([label, (v + 1) % CLASSES if mutation == "mismatched" else v])
                    both = contrast(np.concatenate([near, far]), met, mutation, len(near))
                    dh = align * both[: len(near)]
                    df = align * both[len(near) :] if mutation == "attached" else df
                    if mutation != "apart":
                        df = df + among * contrast(far, v, mutation, len(far))
                y = y - f.lr[t] * (back(y, real, ds, dh) + back(y, noise, dn, df))
            models[i] = y
        x = x + server_lr * (f.share(cohort, weights) @ (models[cohort] - x))
        w, b, big, a = parts(x)
        seen = (np.tanh(PROBE @ w.T + b) @ big.T + a)[:, :CLASSES]  # the extra classes are never predicted
        rounds.append(Round(x, models.copy(), scores=np.stack([seen] * f.clients)))
    return rounds
