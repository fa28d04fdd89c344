"""FedALS by iterations: a group is averaged where s mod H = 0, s the number of the local step, from the first one on.

Every group g has a period H_g = tau p_g. In iteration s = 0, 1, ... everybody asked takes one step, and where s mod H_g
= 0 group g of all is their average. Here step 0 is a round of its own, and round t >= 1 has the tau steps s = (t - 1)
tau + 1, ..., t tau. Partial participation as in fedals.py: a client goes on from its own group if it trained in the
group's interval, else it takes the server's; the average is over the cohort of the round that ends there.
"""

from __future__ import annotations

import numpy as np

from .problem import BODY, Fixture, Round, known

EXAMPLE: dict = {"alpha": 2}
MUTATIONS = {
    "last_step": "averaged where (s + 1) mod H = 0: after tau steps, and the first round as long as the others",
    "whole_round": "the first round with all its steps",
    "head_only": "the head alone averaged after the first step",
    "shifted": "the intervals counted from round 0: the body averaged after rounds 0 and alpha - 1",
    "always_sent": "a sampled client takes the server's body in every round",
}


def run(
    f: Fixture,
    alpha: int = 10,
    third: int = 1,
    phase: str = "first_step",
    weights: str = "uniform",
    mutation: str | None = None,
) -> list[Round]:
    known(mutation, MUTATIONS)
    early = phase == "first_step" and mutation != "last_step"
    periods, server, rounds = np.where(BODY, alpha, 1), f.initial.copy(), []
    periods[30:35] = max(alpha, third)  # a third group, the body's bias
    models, trained = np.tile(f.initial, (f.clients, 1)), np.full(f.clients, -1)
    synchronized = np.full(len(server), -1)  # the last round after which each parameter was averaged
    for t, sampled in enumerate(f.cohorts):
        for i in sampled:
            own = (trained[i] > synchronized) & (trained[i] >= 0) & (mutation != "always_sent")
            theta = np.where(own, models[i], server)
            for k in range(1 if early and t == 0 and mutation != "whole_round" else f.steps(t, i)):
                theta = theta - f.lr[t] * f.gradient(theta, t, i, k)
            models[i], trained[i] = theta, t
        due = t % periods == 0 if early else (t + 1) % periods == 0
        if mutation == "head_only" and t == 0:
            due = periods == 1
        if mutation == "shifted" and t > 0:
            due = (t + 1) % periods == 0
        server = np.where(due, f.share(sampled, weights) @ models[sampled], server)
        synchronized = np.where(due, t, synchronized)
        rounds.append(Round(server, models.copy()))
    return rounds


def by_iterations(f: Fixture, tau: int, alpha: int) -> list[np.ndarray]:
    """Iteration by iteration, everyone in each: all local models [K, 53] after the averaging that ends each round."""
    theta, out = np.tile(f.initial, (f.clients, 1)), []
    for s in range(1 + (f.rounds - 1) * tau):
        t, k = (0, 0) if s == 0 else (1 + (s - 1) // tau, (s - 1) % tau)
        for i in range(f.clients):
            theta[i] = theta[i] - f.lr[t] * f.gradient(theta[i], t, i, k)
        for group, period in ((~BODY, tau), (BODY, alpha * tau)):
            if s % period == 0:
                theta[:, group] = theta[:, group].mean(axis=0)
        if s % tau == 0:
            out.append(theta.copy())
    return out
