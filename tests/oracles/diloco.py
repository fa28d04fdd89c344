"""DiLoCo: Douillard et al. 2023, Algorithm 1: every worker takes H steps of AdamW, the server one of Nesterov's.

for outer step s:  theta_i <- theta;  H times  theta_i <- AdamW(theta_i, g);   D <- mean_i (theta - theta_i)
v <- m v + D;  theta <- theta - e (D + m v)      (torch's SGD with nesterov, in which v is D at first)
AdamW (Loshchilov & Hutter 2019, Algorithm 2): p <- b1 p + (1 - b1) g;  q <- b2 q + (1 - b2) g^2, n its steps so far,
theta <- theta - lr (p / (1 - b1^n) / (sqrt(q / (1 - b2^n)) + eps) + decay theta). A worker's p, q and n go on from one
outer step to the next, and are not averaged. H are the steps of `every` rounds. Partial participation (not in the
paper): who trained since the last outer step goes on, others take theta; those of the closing round are averaged.
"""

from __future__ import annotations

import numpy as np

from .problem import Fixture, Round, known

EXAMPLE: dict = {"every": 2, "decay": 0.1}
MUTATIONS = {
    "fresh": "the workers' moments begin anew after each outer step",
    "plain": "heavy ball: theta <- theta - e v",
    "first_look": "the velocity looked ahead from before: theta <- theta - e (D + m v_old)",
    "adam": "the decay inside the gradient: g + decay theta",
    "each_round": "an outer step after every round",
}


class AdamW:
    """The moments of every client, which go on."""

    def __init__(self, f: Fixture, decay: float = 0.01, beta1: float = 0.9, beta2: float = 0.999, inside: bool = False):
        self.p, self.q = np.zeros((f.clients, len(f.initial))), np.zeros((f.clients, len(f.initial)))
        self.n, self.decay, self.beta1, self.beta2, self.inside = np.zeros(f.clients), decay, beta1, beta2, inside

    def forget(self) -> None:
        self.p, self.q, self.n = 0 * self.p, 0 * self.q, 0 * self.n

    def step(self, theta: np.ndarray, g: np.ndarray, i: int, lr: float) -> np.ndarray:
        g = g + self.decay * theta if self.inside else g
        self.n[i] += 1
        self.p[i] = self.beta1 * self.p[i] + (1 - self.beta1) * g
        self.q[i] = self.beta2 * self.q[i] + (1 - self.beta2) * g * g
        root = np.sqrt(self.q[i] / (1 - self.beta2 ** self.n[i])) + 1e-8
        move = self.p[i] / (1 - self.beta1 ** self.n[i]) / root
        return theta - lr * (move + (0.0 if self.inside else self.decay) * theta)


def run(
    f: Fixture,
    every: int = 1,
    server_lr: float = 0.7,
    momentum: float = 0.9,
    decay: float = 0.01,
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    every = 1 if mutation == "each_round" else every
    inner = AdamW(f, decay, inside=mutation == "adam")
    theta, workers, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    v, going = np.zeros_like(theta), np.zeros(f.clients, dtype=bool)  # who trained since the last outer step
    for t, sampled in enumerate(f.cohorts):
        for i in sampled:
            mine = workers[i] if going[i] else theta
            for k in range(f.steps(t, i)):
                mine = inner.step(mine, f.gradient(mine, t, i, k), i, f.lr[t])
            workers[i], going[i] = mine, True
        if (t + 1) % every == 0:
            outward = theta - f.share(sampled, weights) @ workers[sampled]
            old, v = v, momentum * v + outward
            ahead = {"plain": v, "first_look": outward + momentum * old}.get(mutation or "", outward + momentum * v)
            theta, going = theta - server_lr * ahead, np.zeros_like(going)
            if mutation == "fresh":
                inner.forget()
        rounds.append(Round(theta.copy(), workers.copy()))
    return rounds
