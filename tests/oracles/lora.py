"""The problem of problem.py on a network with low-rank adapters: three frozen layers, each with one adapter or two.

Layer l makes W x + b + (alpha / r) sum_a B_a A_a x of x, with tanh between layers; W and b are frozen. Trained are, by
peft's names and in its order, `l.lora_A.a.weight` [r, in] for every adapter a, then `l.lora_B.a.weight` [out, r].
"""

from __future__ import annotations

import numpy as np

from .problem import CLASSES, FEATURES, Fixture, fixture

SIZES, RANK, SCALE = (FEATURES, 5, 4, CLASSES), 2, 2.0
RNG = np.random.Generator(np.random.Philox(11))
BASE = [(RNG.normal(size=(o, i)), 0.3 * RNG.normal(size=o)) for i, o in zip(SIZES, SIZES[1:], strict=False)]


def shapes(adapters: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """The trained arrays by name, in order."""
    found = {}
    for layer, (i, o) in enumerate(zip(SIZES, SIZES[1:], strict=False)):
        found |= {f"{2 * layer}.lora_A.{a}.weight": (RANK, i) for a in adapters}
        found |= {f"{2 * layer}.lora_B.{a}.weight": (o, RANK) for a in adapters}
    return found


def mask(part: str, adapters: tuple[str, ...] = ("default",)) -> np.ndarray:
    """Which numbers belong to arrays whose name has this part, [D]."""
    return np.concatenate([np.full(np.prod(s), part in name.split(".")) for name, s in shapes(adapters).items()])


class Adapted(Fixture):
    """The fixture with adapters of the names in `of`."""

    of: tuple[str, ...] = ("default",)

    def gradient(self, theta: np.ndarray, t: int, i: int, k: int) -> np.ndarray:
        index = self.batches[t, i][k]
        return gradient(theta, self.x[i][index], self.y[i][index], self.of)


class Dual(Adapted):
    of = ("default", "local")


def adapted(kind: type[Adapted] = Adapted, seed: int = 0) -> Adapted:
    """The fixture's data and schedule, and adapters that are drawn, B too, but for a first layer whose B is 0."""
    plain, rng = fixture(seed, ragged=True), np.random.Generator(np.random.Philox(seed + 5))
    parts = [0.4 * rng.normal(size=shape).ravel() for shape in shapes(kind.of).values()]
    initial = np.concatenate(
        [0 * p if n.startswith("0.lora_B") else p for n, p in zip(shapes(kind.of), parts, strict=True)]
    )
    return kind(*plain._replace(initial=initial))


def arrays(theta: np.ndarray, of: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The trained arrays of a vector [D]."""
    ends = np.cumsum([np.prod(shape) for shape in shapes(of).values()])
    parts = np.split(theta, ends[:-1])
    return {n: part.reshape(shape) for (n, shape), part in zip(shapes(of).items(), parts, strict=True)}


def gradient(theta: np.ndarray, x: np.ndarray, y: np.ndarray, of: tuple[str, ...]) -> np.ndarray:
    """Of the mean cross-entropy: with s = alpha / r,  dB = s d' (x A'),  dA = s (d B)' x,  dx = d W + s d B A, [D]."""
    p, scale, inputs = arrays(theta, of), SCALE, []
    for layer, (w, b) in enumerate(BASE):
        inputs.append(x)
        name = f"{2 * layer}.lora_{{}}.{{}}.weight"
        ends = x @ w.T + b + scale * sum(x @ p[name.format("A", a)].T @ p[name.format("B", a)].T for a in of)
        x = np.tanh(ends) if layer < len(BASE) - 1 else ends
    e = np.exp(x - x.max(axis=1, keepdims=True))
    d = (e / e.sum(axis=1, keepdims=True) - np.eye(CLASSES)[y]) / len(y)
    found = {}
    for layer in reversed(range(len(BASE))):
        name, h = f"{2 * layer}.lora_{{}}.{{}}.weight", inputs[layer]
        back = d @ BASE[layer][0]
        for a in of:
            low, high = p[name.format("A", a)], p[name.format("B", a)]
            found[name.format("B", a)] = scale * d.T @ (h @ low.T)
            found[name.format("A", a)] = scale * (d @ high).T @ h
            back = back + scale * d @ high @ low
        d = back * (1 - h**2)
    return np.concatenate([found[n].ravel() for n in shapes(of)])
