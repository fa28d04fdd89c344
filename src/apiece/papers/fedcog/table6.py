"""FedCOG, Table 6: the number of local steps."""

from __future__ import annotations

from itertools import product

from apiece.papers.fedcog import _setup as shared
from apiece.papers.fedcog._setup import BASELINES, CIFAR10, NIID1, SETUP, cog
from apiece.papers.fedcog._work import later
from apiece.reproduce.card import Card, Claim, Scale
from apiece.reproduce.table import every

ROWS = shared.rows({m: BASELINES[m] for m in ("FedAvg", "FedProx", "MOON")} | {"FedCOG": cog()})
PUBLISHED = """
FedAvg   61.46 64.68 63.45 62.39
FedProx  61.39 63.90 62.13 61.48
MOON     61.12 63.59 63.27 62.81
FedCOG   61.73 65.61 64.89 64.98"""
COLUMNS = {f"tau = {tau}": {"steps": str(tau)} for tau in (200, 400, 600, 800)}
CARD = Card(
    title="FedCOG, Table 6: the number of local steps",
    setup=SETUP | CIFAR10 | NIID1,
    columns=COLUMNS,
    rows=ROWS,
    work=later,
    numbers=shared.NUMBERS,
    published={"accuracy": shared.means(PUBLISHED)},
    claims=(
        Claim(
            "FedCOG highest at every tau",
            "our method FedCOG consistently outperforms the other methods in all scenarios",
            lambda t: t.highest("FedCOG"),
        ),
        Claim(
            "400 above 200 for all, and 800 below 400",
            "when τ is relatively small, the accuracy of all methods rise with the number of local iteration "
            "increasing; while when the number of local iteration gets too large (e.g., 800), the accuracy of all "
            "approaches drops due to the drift of local updates",
            lambda t: every(
                lambda at: t.mean((at[0], at[1])) < t.mean((at[0], "tau = 400")),
                product(t.rows, ("tau = 200", "tau = 800")),
            ),
        ),
    ),
    open=shared.OPEN,
    scales={
        "smoke": Scale(
            "It runs, and says nothing more.", shared.SMOKE, (0,), columns={"tau = 200": {}}, rows={"MOON": {}}
        ),
        "cpu": Scale(
            "24 rounds (the last 4 of FedCOG) instead of 70 (20), and a quarter of the local steps.",
            shared.CPU, rows=shared.after(20, ROWS),
            columns={c: {"steps": str(int(s["steps"]) // 4)} for c, s in COLUMNS.items()},
        ),
        "paper": Scale("As the paper has it."),
    },
)  # fmt: skip
