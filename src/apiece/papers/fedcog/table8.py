"""FedCOG, Table 8: the number of clients."""

from __future__ import annotations

from apiece.papers.fedcog import _setup as shared
from apiece.papers.fedcog._setup import BASELINES, CIFAR10, NIID1, SETUP, cog
from apiece.papers.fedcog._work import later
from apiece.reproduce.card import Card, Claim, Scale

ROWS = shared.rows({m: BASELINES[m] for m in ("FedAvg", "FedProx", "MOON")} | {"FedCOG": cog()})
PUBLISHED = """
FedAvg   61.00 61.77 57.51 58.03
FedProx  61.28 61.90 57.08 58.98
MOON     60.64 60.41 56.25 58.35
FedCOG   61.72 61.98 57.67 59.14"""
CARD = Card(
    title="FedCOG, Table 8: the number of clients",
    setup=SETUP | CIFAR10 | NIID1,
    columns={f"K = {k}": {"clients": k} for k in (5, 10, 20, 30)},
    rows=ROWS,
    published={"accuracy": shared.means(PUBLISHED)},
    numbers=shared.NUMBERS,
    work=later,
    claims=(
        Claim(
            "FedCOG highest for every number of clients",
            "Our method consistently outperforms all other approaches across different numbers of clients.",
            lambda t: t.highest("FedCOG"),
        ),
    ),
    open=(*shared.OPEN, "how many clients take part: all, as in Table 1 (its FedAvg has 64.36 there with 10 clients)"),
    scales={
        "smoke": Scale(
            "It runs, and says nothing more.", shared.SMOKE, (0,), columns={"K = 5": {}}, rows={"FedAvg": {}}
        ),
        "cpu": Scale(
            f"5, 10 and 20 clients; {shared.FEWER}.", shared.CPU, rows=shared.after(20, ROWS),
            columns={f"K = {k}": {} for k in (5, 10, 20)},
        ),
        "paper": Scale("As the paper has it."),
    },
)  # fmt: skip
