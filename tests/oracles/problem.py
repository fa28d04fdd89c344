"""A small federated problem: six ragged clients, a one-hidden-layer tanh network, exact gradients, a written schedule.

The parameters are one vector [53], laid out as torch ravels nn.Sequential(Linear(6, 5), Tanh(), Linear(5, 3)): weight
[out, in] row by row, then bias, layer after layer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

FEATURES, HIDDEN, CLASSES = 6, 5, 3
SHAPES = {"0.weight": (HIDDEN, FEATURES), "0.bias": (HIDDEN,), "2.weight": (CLASSES, HIDDEN), "2.bias": (CLASSES,)}
SIZES = [int(np.prod(shape)) for shape in SHAPES.values()]
SIZE = sum(SIZES)  # 30 + 5 + 15 + 3 = 53
ENDS = [sum(SIZES[: k + 1]) for k in range(len(SIZES))]
BODY = np.arange(SIZE) < HIDDEN * FEATURES + HIDDEN  # the first layer, mask [53]
HEAD = ~BODY  # the last layer
SAMPLES = (12, 5, 26, 8, 40, 17)
# Client 5 first appears in round 2, after the server has moved; client 1 skips rounds 1 and 3. Within an interval of
# three rounds, clients 1 and 2 pause and go on, client 0 goes on at once, and client 3 trains but misses the end.
COHORTS = ((0, 1, 2), (0, 3, 4), (1, 2, 5), (0, 3, 5), (1, 3, 4), (0, 2, 3))


class Fixture(NamedTuple):
    """The whole problem as data: whoever follows it has no choice left."""

    x: tuple[np.ndarray, ...]  # features of each client, [n_i, 6]
    y: tuple[np.ndarray, ...]  # labels of each client, [n_i], int64
    initial: np.ndarray  # [53]
    cohorts: tuple[np.ndarray, ...]  # clients of each round, sorted
    batches: dict[tuple[int, int], np.ndarray]  # (round, client) -> sample indices of every local step, [K, B]
    lr: np.ndarray  # local step size of each round, [R]

    @property
    def clients(self) -> int:
        return len(self.x)

    @property
    def rounds(self) -> int:
        return len(self.cohorts)

    @property
    def samples(self) -> np.ndarray:
        return np.array([len(y) for y in self.y], dtype=np.float64)

    def steps(self, t: int, i: int) -> int:
        return len(self.batches[t, i])

    def gradient(self, theta: np.ndarray, t: int, i: int, k: int) -> np.ndarray:
        """Gradient of client i's minibatch loss in local step k of round t, [53]."""
        index = self.batches[t, i][k]
        return gradient(theta, self.x[i][index], self.y[i][index])

    def share(self, cohort: np.ndarray, weights: str) -> np.ndarray:
        """Weights of the cohort's models, summing to one: `uniform` or by `samples`."""
        assert weights in ("uniform", "samples"), weights
        w = np.ones(len(cohort)) if weights == "uniform" else self.samples[cohort]
        return w / w.sum()


class Round(NamedTuple):
    """What an oracle hands back after each round."""

    server: np.ndarray  # the server's vector, [53]; what is not due yet, or never, is as it was before
    models: np.ndarray  # each client's model as it last ended, before averaging, [N, 53]; `initial` if never seen
    control: np.ndarray | None = None  # the server's control variate c, [53]
    controls: np.ndarray | None = None  # the clients' control variates c_i, [N, 53]
    scores: np.ndarray | None = None  # what each client predicts at PROBE, [N, P, 3]


def fixture(seed: int = 0, steps: int = 3, batch: int = 4, ragged: bool = False) -> Fixture:
    """Six rounds over six clients of 5 to 40 samples, three a round; `ragged` gives client i (i mod 3) more steps.

    Every client has a teacher of its own and shifted features, so that gradients differ between clients everywhere.
    Batches exist for every client in every round, drawn without replacement within a step. lr_t = 0.5 * 0.8^t.
    """
    rng = np.random.Generator(np.random.Philox(seed))
    teacher = rng.normal(size=(FEATURES, CLASSES))
    x, y = [], []
    for n in SAMPLES:
        own = teacher + rng.normal(size=teacher.shape)
        x.append(rng.normal(size=(n, FEATURES)) + 0.5 * rng.normal(size=FEATURES))
        y.append(np.argmax(x[-1] @ own + 0.5 * rng.normal(size=(n, CLASSES)), axis=1))
    initial = 0.5 * rng.normal(size=SIZE)
    batches = {}
    for t in range(len(COHORTS)):
        for i, n in enumerate(SAMPLES):
            count = steps + (i % 3 if ragged else 0)
            batches[t, i] = np.stack([rng.permutation(n)[:batch] for _ in range(count)])
    cohorts = tuple(np.array(c) for c in COHORTS)
    return Fixture(tuple(x), tuple(y), initial, cohorts, batches, 0.5 * 0.8 ** np.arange(len(COHORTS)))


def drawn(t: int, i: int) -> np.ndarray:
    """A number for each of client i's samples in round t, and for some that it has not: sorted, the order of these."""
    return np.random.Generator(np.random.Philox([t, i])).random(max(SAMPLES))


def in_turn(f: Fixture, t: int, i: int, number: int, size: int) -> np.ndarray:
    """Samples of batch `number` of passes over all of client i's in the order that is drawn for round t, [B]."""
    order = np.argsort(drawn(t, i)[: len(f.y[i])])
    return np.resize(order, (number + 1) * size)[number * size :]


def everyone(f: Fixture) -> Fixture:
    """The same problem with full participation."""
    return f._replace(cohorts=tuple(np.arange(f.clients) for _ in f.cohorts))


def constant(f: Fixture) -> Fixture:
    """The same problem with a step size that does not decay."""
    return f._replace(lr=np.full_like(f.lr, f.lr[0]))


PROBE = np.random.Generator(np.random.Philox(7)).normal(size=(7, FEATURES))


def probe(theta: np.ndarray) -> np.ndarray:
    """Scores at PROBE, [P, 3]."""
    return outputs(theta, PROBE)


def visible(rounds: list[Round]) -> np.ndarray:
    """The server's vector and every client's scores, the server's where none are said, [R, 53 + N P 3]."""
    predicted = [np.stack([probe(r.server)] * len(r.models)) if r.scores is None else r.scores for r in rounds]
    return np.stack([np.concatenate([r.server, p.ravel()]) for r, p in zip(rounds, predicted, strict=True)])


def servers(rounds: list[Round]) -> np.ndarray:
    """The server's vectors after each round, [R, 53]."""
    return np.stack([r.server for r in rounds])


def unravel(theta: np.ndarray) -> dict[str, np.ndarray]:
    """The network's arrays, by torch's names."""
    table = zip(SHAPES.items(), SIZES, ENDS, strict=True)
    return {name: theta[end - size : end].reshape(shape) for (name, shape), size, end in table}


def outputs(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Scores V tanh(W x + b) + a, [B, 3]."""
    p = unravel(theta)
    return np.tanh(x @ p["0.weight"].T + p["0.bias"]) @ p["2.weight"].T + p["2.bias"]


def loss(theta: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    """Mean cross-entropy, log sum_c exp(s_c) - s_y."""
    s = outputs(theta, x)
    top = s.max(axis=1)
    return float(np.mean(top + np.log(np.exp(s - top[:, None]).sum(axis=1)) - s[np.arange(len(y)), y]))


def gradient(theta: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Gradient of `loss`: ds = (softmax(s) - onehot(y))/B;  dV = ds' h;  dW = ((ds V) * (1 - h^2))' x, [53]."""
    p = unravel(theta)
    h = np.tanh(x @ p["0.weight"].T + p["0.bias"])
    s = h @ p["2.weight"].T + p["2.bias"]
    e = np.exp(s - s.max(axis=1, keepdims=True))
    ds = (e / e.sum(axis=1, keepdims=True) - np.eye(CLASSES)[y]) / len(y)
    dh = (ds @ p["2.weight"]) * (1 - h**2)
    return np.concatenate([(dh.T @ x).ravel(), dh.sum(axis=0), (ds.T @ h).ravel(), ds.sum(axis=0)])


def full_batches(f: Fixture, i: int, theta: np.ndarray, steps: int, lr: float, moves: object = True) -> np.ndarray:
    """So many steps of descent on all samples of client i, of the parameters that move."""
    for _ in range(steps):
        theta = np.where(moves, theta - lr * gradient(theta, f.x[i], f.y[i]), theta)
    return theta


def known(mutation: str | None, mutations: dict[str, str]) -> None:
    """Refuse a wrong reading that is not listed: a misspelt one would silently be the right reading."""
    assert mutation is None or mutation in mutations, f"{mutation!r} is not one of {sorted(mutations)}"
