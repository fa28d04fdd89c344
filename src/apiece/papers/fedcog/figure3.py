"""FedCOG, Figure 3 (a): the level of heterogeneity. `fedcog-figure3bc` has the other two panels."""

from __future__ import annotations

from apiece.papers.fedcog import _setup as shared
from apiece.papers.fedcog._setup import BASELINES, CIFAR10, SETUP, cog
from apiece.papers.fedcog._work import later
from apiece.reproduce.card import Card, Claim, Scale
from apiece.reproduce.figures import Panel, over_setting, panels
from apiece.reproduce.table import every

BETAS = (0.1, 0.5, 1.0, 5.0)
ROWS = shared.rows({m: BASELINES[m] for m in ("FedAvg", "FedProx")} | {"FedCOG": cog()})
CARD = Card(
    title="FedCOG, Figure 3 (a): heterogeneity",
    setup=SETUP | CIFAR10,
    columns={f"beta {b}": {"split": f"dirichlet_capped({b})"} for b in BETAS},
    rows=ROWS,
    work=later,
    numbers=shared.NUMBERS,
    claims=(
        Claim(
            "FedAvg, FedProx and FedCOG rise from beta 0.1 to 5",
            "generally, FL methods have worse performance under the more heterogeneous scenarios",
            lambda t: every(lambda m: t.mean((m, "beta 5.0")) > t.mean((m, "beta 0.1")), t.rows),
        ),
        Claim(
            "FedCOG highest at every beta",
            "FedCOG consistently performs the best across different heterogeneity levels",
            lambda t: t.highest("FedCOG"),
        ),
    ),
    open=(*shared.OPEN, "the two baselines: FedAvg and FedProx; the figure's numbers, which its text lacks"),
    figure=panels(
        Panel("", "beta", "accuracy on the test set, %",
              {m: over_setting({b: (m, f"beta {b}") for b in BETAS}, "accuracy", 100.0) for m in ROWS}),
    ),
    scales={
        "smoke": Scale("It runs.", shared.SMOKE, (0,), rows={"FedAvg": {}}, columns={"beta 5.0": {}}),
        "cpu": Scale(f"Beta 0.1 and 5; {shared.FEWER}.", shared.CPU, rows=shared.after(20, ROWS),
                     columns={"beta 0.1": {}, "beta 5.0": {}}),
        "paper": Scale("As the paper has it."),
    },
)  # fmt: skip
