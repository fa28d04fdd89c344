"""FedCOG, Table 5: what the generated data are made from, and how they are learned."""

from __future__ import annotations

from apiece.papers.fedcog import _setup as shared
from apiece.papers.fedcog._setup import COLUMNS, SETUP, cog
from apiece.papers.fedcog._work import later
from apiece.reproduce.card import Card, Claim, Scale
from apiece.reproduce.table import every

NOISE, GLOBAL, HARD, FULL = (
    "1: Gaussian noise, soft", "2: of the global model, soft", "3: of both models, hard", "4: of both models, soft",
)  # fmt: skip
ROWS = {
    NOISE: {"algorithm": cog(steps=0)},
    GLOBAL: {"algorithm": cog(dis=0)},
    HARD: {"algorithm": cog(), "hard": True},
    FULL: {"algorithm": cog()},
}


def above(row):
    """FedCOG's mean is the larger one in every column."""
    return lambda t: every(lambda c: t.mean((FULL, c)) > t.mean((row, c)), t.columns)


CARD = Card(
    title="FedCOG, Table 5: ablation",
    setup=SETUP,
    columns={c: COLUMNS[c] for c in ("CIFAR-10 NIID-1", "CIFAR-10 NIID-2")},
    rows=ROWS,
    work=later,
    numbers=shared.NUMBERS,
    published={"accuracy": {NOISE: [60.98, 49.67], GLOBAL: [64.72, 51.61], HARD: [63.59, 51.64], FULL: [64.88, 53.20]}},
    claims=(
        Claim(
            "generated data above noise beyond chance",
            "we see that data generation from global model and local model leads to significantly better performance "
            "than Gaussian noise",
            lambda t: every(lambda c: t.above((FULL, c), (NOISE, c)), t.columns),
        ),
        Claim(
            "with the disagreement above without it",
            "adding the disagreement term between global and local model contributes to better performance",
            above(GLOBAL),
        ),
        Claim("soft labels above hard ones", "soft-label format supervision leads to better performance", above(HARD)),
    ),
    open=(*shared.OPEN, "hard labels: the cross entropy with the targets, with the weight of the distillation, 0.01"),
    scales={
        "smoke": Scale(
            "It runs, and says nothing more.", shared.SMOKE, (0,), columns={"CIFAR-10 NIID-1": {}},
            rows={HARD: {"algorithm": cog(wait=1, steps=2, samples=16)}},
        ),
        "cpu": Scale(
            f"{shared.FEWER}.", shared.CPU, rows=shared.after(20, ROWS),
        ),
        "paper": Scale("As the paper has it."),
    },
)  # fmt: skip
