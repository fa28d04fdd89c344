"""An oracle's fixture on driftless: the same cohorts, batches and step sizes, and each oracle's algorithm as pieces."""

from __future__ import annotations

from typing import Any

import torch
from helpers import KEEPS_ALL, Given, Ran, federate, federation, run
from oracles.problem import CLASSES, FEATURES, HIDDEN, Fixture, Round
from torch import nn

from driftless import algorithms as named
from driftless.algorithm import Algorithm, Period, StepSize, algorithm, combine
from driftless.lift import Sequential
from driftless.optim import Descent


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES))


def build(oracle: str, **hyper: Any) -> Algorithm:
    """The algorithm that an oracle writes out, at these values (weights, server_lr and cohort are the run's)."""
    relaxed = named.relaxed_init(**{k: hyper[k] for k in ("beta", "aggregate") if k in hyper})
    prox = named.fedprox(hyper.get("mu", 0.1))
    slow = (
        algorithm(Period("body", hyper.get("alpha", 10)), name="slow body")
        if hyper.get("alpha") != 1
        else named.fedavg()
    )
    outer = {k: hyper[k] for k in ("outer_shared", "outer_personal") if k in hyper}
    scale = {k: hyper.get(k, 1.0) for k in ("scale_shared", "scale_personal")}
    steps = [StepSize("body", scale["scale_shared"])] if scale["scale_shared"] != 1 else []
    sizes = combine(steps, "step sizes")
    personal = {"inner_personal": scale["scale_personal"], **outer}
    table = {
        "fedavg": lambda: named.fedavg(),
        "fedprox": lambda: prox,
        "scaffold": lambda: named.scaffold(),
        "fedinit": lambda: relaxed,
        "fedals": lambda: slow,
        "fedals_fedinit": lambda: slow + relaxed,
        "fedals_scaffold": lambda: slow + named.scaffold(),
        "fedavg_p": lambda: named.fedavg_p(**personal) + sizes,
        "scaffold_p": lambda: named.scaffold_p(**personal) + sizes,
        "fedprox_fedinit": lambda: prox + relaxed,
        "scaffold_fedinit": lambda: named.scaffold() + relaxed,
        "scaffold_p_fedinit": lambda: named.scaffold_p(**personal) + sizes + relaxed,
    }
    return table[oracle]()


def follow(
    subject: Algorithm,
    f: Fixture,
    weights: str = "uniform",
    server_lr: float = 1.0,
    cohort: str = "redrawn",
    alpha: int = 1,
    lift: Any = None,
    keep: bool = True,
    **rest: Any,
) -> tuple[Ran, list[Round]]:
    """Run an algorithm on a fixture; what an oracle hands back of each round, as torch tensors."""
    server = {} if subject.server is not None else {"server": Descent(server_lr)}
    watch = KEEPS_ALL if keep else frozenset()
    federated = federate(subject, network(), weighting=weights, watch=watch, **server)
    object.__setattr__(federated, "initial", torch.from_numpy(f.initial))
    table = {(t, f"c{i}"): torch.from_numpy(rows) for (t, i), rows in f.batches.items()}
    cohorts = [f.cohorts[t - t % alpha] if cohort == "held" else f.cohorts[t] for t in range(f.rounds)]
    scaffold = [k for k, p in enumerate(subject.pieces) if "Scaffold" in type(p).__name__]
    seen: list[Any] = []

    def look(t: int, clients: Any) -> None:
        rows = [clients.row(c)[0] for c in range(f.clients)]
        name = next((k for k in rows[0] if scaffold and k.startswith("memory.")), None)
        seen.append(
            (
                torch.stack([r["model"] for r in rows]) if keep else None,
                torch.stack([r[name] for r in rows]) if name else None,
            )
        )

    ran = run(federated, federation(f.x, f.y), Given(table), cohorts, f.lr, lift or Sequential(), after=look)
    rounds = [
        Round(s.params, kept, s.memory[scaffold[0]].variate if scaffold else None, controls)
        for s, (kept, controls) in zip(ran.servers[1:], seen, strict=True)
    ]
    return ran, rounds


def furthest(ours: list[Round], theirs: list[Round]) -> float:
    """The largest difference in servers, models kept and control variates over all rounds."""
    pairs = [
        (a, b)
        for o, t in zip(ours, theirs, strict=True)
        for a, b in zip(o, t, strict=True)
        if a is not None and b is not None
    ]
    return max(float((a - torch.from_numpy(b)).abs().max()) for a, b in pairs)
