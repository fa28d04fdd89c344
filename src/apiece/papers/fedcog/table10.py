"""FedCOG, Table 10: the number of generation steps."""

from __future__ import annotations

from apiece.papers.fedcog import _setup as shared
from apiece.papers.fedcog._setup import CIFAR10, NIID1, SETUP, cog
from apiece.papers.fedcog._work import later
from apiece.reproduce.card import Card, Claim, Scale
from apiece.reproduce.table import every

STEPS = (0, 50, 100, 500, 1000)
ROWS = {f"{steps} steps": {"algorithm": cog(steps=steps)} for steps in STEPS}
CIFAR = "CIFAR-10 NIID-1"
CARD = Card(
    title="FedCOG, Table 10: the number of generation steps",
    setup=SETUP | CIFAR10 | NIID1,
    columns={CIFAR: {}},
    rows=ROWS,
    work=later,
    numbers=shared.NUMBERS,
    published={"accuracy": dict(zip(ROWS, ([60.98], [65.40], [65.44], [64.80], [64.92]), strict=True))},
    claims=(
        Claim(
            "100 steps above none",
            "The performance is degraded when the generation step is too small or too large.",
            lambda t: t.mean(("100 steps", CIFAR)) > t.mean(("0 steps", CIFAR)),
        ),
        Claim(
            "100 steps above 500 and 1000",
            "generally, a moderate size (e.g., 100) of generation step contributes to better performance",
            lambda t: every(lambda s: t.mean(("100 steps", CIFAR)) > t.mean((f"{s} steps", CIFAR)), (500, 1000)),
        ),
    ),
    open=(*shared.OPEN, "the heterogeneity: NIID-1, whose 60.98 without generation Table 5 has, too"),
    scales={
        "smoke": Scale(
            "It runs, and says nothing more.", shared.SMOKE, (0,), rows={"0 steps": {"algorithm": cog(wait=1, steps=0)}}
        ),
        "cpu": Scale(
            f"{shared.FEWER}; 64 generated samples instead of 256.", shared.CPU,
            rows={f"{steps} steps": {"algorithm": cog(wait=20, steps=steps, samples=64)} for steps in STEPS},
        ),
        "paper": Scale("As the paper has it."),
    },
)  # fmt: skip
