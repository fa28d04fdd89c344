"""The claims of FedAvg-P and Scaffold-P (Chen et al. 2023) on apiece; the problem: `oracles/personal_claims.py`."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from oracles import personal_claims as claims
from oracles.personal_claims import Data, Settings
from support.helpers import Given, federate, run
from torch import Tensor, nn

from apiece.data.federation import Federation
from apiece.language import algorithms as named
from apiece.lifts.lift import Vectorized

pytestmark = pytest.mark.slow

TOTAL = 700  # local steps a curve
DATA = claims.data(0)


class Toy(nn.Module):
    """f_i(x, y) + <noise_ij, x> for a batch of (i, noise_ij); the data are constants."""

    def __init__(self, d: Data):
        super().__init__()
        self.x, self.y = nn.Parameter(torch.zeros(d.a.shape[2])), nn.Parameter(torch.zeros(d.b.shape[2]))
        self.constants, self.rho = [torch.from_numpy(array) for array in (d.a, d.b, d.label)], d.rho

    def forward(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        who, noise = batch
        a, b, label = (array[who] for array in self.constants)
        smooth = sum((v * v / (1 + v * v)).sum() for v in (self.x, self.y))
        return nn.functional.softplus(-label * (a @ self.x + b @ self.y)).mean(-1) + self.rho * smooth + noise @ self.x


def curve(settings: Settings) -> np.ndarray:
    """||(1/N) sum_i grad_x f_i(x^r, y_i^r)||^2 before every round, from apiece's server and the clients' rows."""
    clients, pool, shared = DATA.noise.shape
    plan = claims.schedule(settings, clients, pool)
    kind = {"fedavg_p": named.fedavg_p, "scaffold_p": named.scaffold_p}[settings.algorithm]
    subject = kind("y", settings.outer_shared, settings.outer_personal)
    who = torch.arange(clients).repeat_interleave(pool)
    rows = list(torch.arange(clients * pool).split(pool))
    noise = torch.from_numpy(DATA.noise.reshape(-1, shared))
    data = Federation(((who, noise), who), (), rows, rows, [f"c{i}" for i in range(clients)])
    table = {
        (t, f"c{c}"): torch.from_numpy(plan.noise[t, place])[:, None]
        for t, cohort in enumerate(plan.cohorts)
        for place, c in enumerate(cohort)
    }
    personal, errors = np.zeros((clients, DATA.b.shape[2])), []

    def measure(x: Tensor) -> None:
        errors.append((claims.gradients(DATA, x[:shared].numpy(), personal)[0].mean(axis=0) ** 2).sum())

    def after(t: int, place) -> None:
        for c in plan.cohorts[t]:
            personal[c] = place.row(int(c))[0]["model"].numpy()
        points.append(personal.copy())

    points: list[np.ndarray] = []
    federated = federate(subject, Toy(DATA), loss=lambda value, _: value.mean(), weighting="uniform")
    ran = run(federated, data, Given(table), plan.cohorts, settings.step, Vectorized(32), after=after)
    for server, here in zip(ran.servers, [np.zeros_like(personal), *points], strict=True):
        personal[:] = here
        measure(server.params)
    return np.array(errors[:-1])


@cache
def floor(settings: Settings) -> float:
    """The steady-state error, from a curve that is the oracle's own."""
    ours = curve(settings)
    theirs = claims.run(DATA, settings, claims.schedule(settings, len(DATA.a), DATA.noise.shape[1]))
    assert np.abs(ours - theirs).max() < 1e-10
    return claims.steady(ours, settings)


BASE = {name: Settings(name, steps=2, total=TOTAL) for name in ("fedavg_p", "scaffold_p")}


def test_the_floor_grows_with_local_steps_for_the_one_and_not_for_the_other():
    """FedAvg-P's is proportional to K (five times here), Scaffold-P's has no K in it."""
    grows = {name: floor(s._replace(steps=10)) / floor(s) for name, s in BASE.items()}
    assert 2.5 < grows["fedavg_p"] < 10 and 0.5 < grows["scaffold_p"] < 2


def test_scaffold_p_lies_far_below():
    assert floor(BASE["scaffold_p"]) < floor(BASE["fedavg_p"]) / 10


@pytest.mark.parametrize("name, less", [("fedavg_p", 20), ("scaffold_p", 4)])
def test_the_floor_falls_with_more_clients(name, less):
    """All clients leave FedAvg-P nothing but noise; Scaffold-P's falls by (1 + 15/19)/5 * 20 = 7."""
    assert floor(BASE[name]._replace(sampled=20)) < floor(BASE[name]) / less


@pytest.mark.parametrize("name", BASE)
def test_the_floor_falls_with_a_smaller_step(name):
    larger = BASE[name]._replace(step=2 * BASE[name].step, total=TOTAL // 2)
    assert 1.3 < floor(larger) / floor(BASE[name]) < 5


@pytest.mark.parametrize("name", BASE)
def test_outer_steps_follow_the_oracle(name):
    floor(BASE[name]._replace(outer_shared=0.7, outer_personal=0.4, total=100))
