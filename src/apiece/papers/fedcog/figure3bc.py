"""FedCOG, Figure 3: (b) the disagreement's weight, (c) the distillation's weight."""

from __future__ import annotations

from apiece.papers.fedcog import _setup as shared
from apiece.papers.fedcog._setup import CIFAR10, NIID1, NIID2, SETUP, cog
from apiece.papers.fedcog._work import later
from apiece.reproduce.card import Card, Claim, Scale
from apiece.reproduce.figures import Panel, over_setting, panels

DIS, KD = (0.01, 0.1, 1.0, 10.0), (0.001, 0.01, 0.1, 1.0)
BETTER = "generally λdis=0.1 and λkd=0.01 can lead to better performance for both settings"
COLUMNS = {"NIID-1": NIID1, "NIID-2": NIID2}


def row(kind, value):
    """The row of a weight; both defaults are FedCOG's."""
    return "FedCOG" if (kind, value) in (("dis", 0.1), ("kd", 0.01)) else f"{kind} {value}"


ROWS = shared.rows(
    {row("dis", 0.1): cog()}
    | {row("dis", x): cog(dis=x) for x in DIS if x != 0.1}
    | {row("kd", x): cog(kd_weight=x) for x in KD if x != 0.01}
)


def panel(kind, values):
    lines = {c: over_setting({v: (row(kind, v), c) for v in values}, "accuracy", 100.0) for c in COLUMNS}
    return Panel("", f"lambda_{kind}", "accuracy on the test set, %", lines)


def default_best(kind, values):
    """The default has the highest mean of all values of its weight, in each setting."""
    return lambda t: t.highest("FedCOG", rows=[row(kind, v) for v in values])


CARD = Card(
    title="FedCOG, Figure 3 (b) and (c): the weights of disagreement and of distillation",
    setup=SETUP | CIFAR10,
    columns=COLUMNS,
    rows=ROWS,
    work=later,
    numbers=shared.NUMBERS,
    claims=(
        Claim("lambda_dis = 0.1 best in both settings", BETTER, default_best("dis", DIS)),
        Claim("lambda_kd = 0.01 best in both settings", BETTER, default_best("kd", KD)),
    ),
    open=(*shared.OPEN, "the figure's numbers, which its text lacks"),
    figure=panels(panel("dis", DIS), panel("kd", KD)),
    scales={
        "smoke": Scale("It runs.", shared.SMOKE, (0,), columns={"NIID-1": {}}, rows={
            row("kd", 1.0): {"algorithm": cog(wait=1, steps=2, samples=16, kd_weight=1.0)},
        }),
        "cpu": Scale(f"{shared.FEWER}.", shared.CPU, rows=shared.after(20, ROWS)),
        "paper": Scale("As the paper has it."),
    },
)  # fmt: skip
