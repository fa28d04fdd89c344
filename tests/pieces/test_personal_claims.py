"""The curves of FedAvg-P's and Scaffold-P's claims (Chen et al. 2023) on apiece are those of the oracle."""

from __future__ import annotations

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


BASE = {name: Settings(name, steps=2, total=100) for name in ("fedavg_p", "scaffold_p")}
CHANGED = {"as it is": {}, "more steps": {"steps": 10}, "all clients": {"sampled": 20}, "a larger step": {"step": 0.4},
           "outer steps": {"outer_shared": 0.7, "outer_personal": 0.4}}  # fmt: skip


# what is changed catches a number that apiece does not read as the claims do
@pytest.mark.parametrize("changed", CHANGED)
@pytest.mark.parametrize("name", BASE)
def test_the_curve_is_the_oracles(name, changed):
    """Of which the paper's claims hold: test_oracles_claims.py."""
    settings = BASE[name]._replace(**CHANGED[changed])
    theirs = claims.run(DATA, settings, claims.schedule(settings, len(DATA.a), DATA.noise.shape[1]))
    assert np.abs(curve(settings) - theirs).max() < 1e-10
