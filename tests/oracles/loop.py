"""FedAvg's loop with a place for each part of a composition: what its parts say of one another is all that is left.

x is sent to the cohort S;  y_i = start;  K times  y_i <- y_i - lr_t along(y_i);   x <- server(x, sum_{i in S} w_i D_i)
D_i = (client i's model) - x by `paper`, - start_i by `delta`. With a period alpha the body is averaged every alpha
rounds and the head in all: participation as in fedals.py. As it stands it is fedavg.py's loop, with a period
fedals.py's, from `relaxed` starts fedinit.py's, and with `Variates` scaffold.py's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from .problem import BODY, Fixture, Round

Direction = Callable[[np.ndarray, int], np.ndarray]  # (y, number of the local step) -> what the step goes along
Step = Callable[[np.ndarray, np.ndarray, list["Turn"]], np.ndarray]  # (x, mean of the D_i, turns) -> the new x


@dataclass
class Turn:
    """A client's training in one round."""

    f: Fixture
    t: int
    i: int
    sent: np.ndarray  # the server's vector, [53]
    model: np.ndarray  # the client's model as it was left, [53]
    last: np.ndarray  # where its training last ended; the initial vector if it never trained, [53]
    new: bool  # it never trained
    opens: np.ndarray  # what it takes from the server, the rest going on from its model, mask [53]
    due: np.ndarray  # what is averaged after this round, mask [53]
    start: np.ndarray = field(init=False)
    end: np.ndarray = field(init=False)

    @property
    def steps(self) -> int:
        return self.f.steps(self.t, self.i)

    @property
    def lr(self) -> float:
        return float(self.f.lr[self.t])

    def gradient(self, theta: np.ndarray, k: int) -> np.ndarray:
        """Of the loss on the batch of local step k, [53]."""
        return self.f.gradient(theta, self.t, self.i, k)

    def taken(self) -> np.ndarray:
        """What is open from the server, the rest from the client's model, [53]."""
        return np.where(self.opens, self.sent, self.model)


def averaged(x: np.ndarray, mean: np.ndarray, turns: list[Turn]) -> np.ndarray:
    """FedAvg's server."""
    return np.where(turns[0].due, x + mean, x)


def relaxed(beta: float, mutation: str | None = None) -> Callable[[Turn], np.ndarray]:
    """FedInit's start: what is open begins at w + beta (w - last_i); by the wrong reading `sign` nearer to last_i."""
    sign = -1 if mutation == "sign" else 1
    return lambda turn: np.where(turn.opens, turn.sent + sign * beta * (turn.sent - turn.last), turn.model)


class Variates:
    """SCAFFOLD's c and c_i, or FedDyn's h and h_i: all are 0 at first, and the server's moves with the clients'."""

    def __init__(self, f: Fixture):
        self.server, self.clients = np.zeros_like(f.initial), np.zeros((f.clients, len(f.initial)))

    def corrected(self, turn: Turn) -> Direction:
        """g - c_i + c."""
        return lambda y, k: turn.gradient(y, k) - self.clients[turn.i] + self.server

    def moving(self, new: Callable[[Turn], np.ndarray], mutation: str | None = None, step: Step = averaged) -> Step:
        """The server's step after  c <- c + (1/N) sum_{i in S} (c_i+ - c_i),  every c_i+ made with the old c; by the
        wrong reading `share` it is 1/S.
        """

        def server(x: np.ndarray, mean: np.ndarray, turns: list[Turn]) -> np.ndarray:
            moved = np.stack([new(turn) - self.clients[turn.i] for turn in turns])
            self.clients[[turn.i for turn in turns]] += moved
            self.server = self.server + moved.sum(axis=0) / len(turns if mutation == "share" else self.clients)
            return step(x, mean, turns)

        return server


def loop(
    f: Fixture,
    start: Callable[[Turn], np.ndarray] = Turn.taken,
    along: Callable[[Turn], Direction] = lambda turn: turn.gradient,
    server: Step = averaged,
    keeps: Callable[[Turn], np.ndarray] = lambda turn: turn.end,
    remembers: Callable[[Turn, np.ndarray], np.ndarray] = lambda turn, x: turn.end,
    variates: Variates | None = None,
    alpha: int = 1,
    body: np.ndarray = BODY,
    cohort: str = "redrawn",
    aggregate: str = "paper",
    weights: str = "uniform",
) -> list[Round]:
    """Where a client starts, what its steps go along, what the server makes of the mean, the client's model after its
    training, what the next relaxed start calls its last, given the server's new vector; and what is handed back.
    """
    assert cohort in ("redrawn", "held") and aggregate in ("paper", "delta"), (cohort, aggregate)
    x, models, rounds = f.initial.copy(), np.tile(f.initial, (f.clients, 1)), []
    last, trained = models.copy(), np.full(f.clients, -1)
    for t in range(f.rounds):
        first = t - t % alpha  # the first round since the body was averaged
        sampled, due = f.cohorts[first if cohort == "held" else t], ~body | ((t + 1) % alpha == 0)
        turns = []
        for i in sampled:
            turn = Turn(f, t, i, x, models[i].copy(), last[i].copy(), trained[i] < 0, ~body | (trained[i] < first), due)
            turn.start = turn.end = start(turn)
            direction = along(turn)
            for k in range(turn.steps):
                turn.end = turn.end - turn.lr * direction(turn.end, k)
            models[i], trained[i] = keeps(turn), t
            turns.append(turn)
        base = x if aggregate == "paper" else np.stack([turn.start for turn in turns])
        x = server(x, f.share(sampled, weights) @ (models[sampled] - base), turns)
        last[sampled] = [remembers(turn, x) for turn in turns]
        control = (variates.server, variates.clients.copy()) if variates else ()
        rounds.append(Round(x, models.copy(), *control))
    return rounds
