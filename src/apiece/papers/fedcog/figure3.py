"""FedCOG, Figure 3: (a) the level of heterogeneity, (b) the disagreement's weight, (c) the distillation's weight."""

from __future__ import annotations

from apiece.papers.fedcog import _setup as shared
from apiece.papers.fedcog._setup import BASELINES, CIFAR10, NIID2, SETUP, cog
from apiece.papers.fedcog._work import later
from apiece.reproduce.card import Card, Claim, Scale
from apiece.reproduce.figures import Panel, over_setting, panels

BETAS, DIS, KD = (0.1, 0.5, 1.0, 5.0), (0.01, 0.1, 1.0, 10.0), (0.001, 0.01, 0.1, 1.0)
DEFAULT, MORE = "FedCOG", ("FedAvg", "FedProx")
BETTER = "generally λdis=0.1 and λkd=0.01 can lead to better performance for both settings"
COLUMNS = {f"beta {b}": {"split": f"dirichlet_capped({b})"} for b in BETAS} | {"NIID-2": NIID2}
ROWS = shared.rows(
    {m: BASELINES[m] for m in MORE}
    | {DEFAULT: cog()}
    | {f"dis {x}": cog(dis=x) for x in DIS if x != 0.1}
    | {f"kd {x}": cog(kd_weight=x) for x in KD if x != 0.01}
)
TWO = ("beta 0.1", "NIID-2")


def row(kind, value):
    """The row of a weight; both defaults are FedCOG's."""
    return DEFAULT if (kind, value) in (("dis", 0.1), ("kd", 0.01)) else f"{kind} {value}"


def weights(kind, values):
    lines = {
        name: over_setting({v: (row(kind, v), column) for v in values}, "accuracy", 100.0)
        for name, column in zip(("NIID-1", "NIID-2"), TWO, strict=True)
    }
    return Panel("", f"lambda_{kind}", "accuracy on the test set, %", lines)


def default_best(kind, values):
    """The default has the highest mean over both settings."""
    mean = lambda t, v: sum(t.mean((row(kind, v), c)) for c in TWO)  # noqa: E731
    default = {"dis": 0.1, "kd": 0.01}[kind]
    return lambda t: all(mean(t, default) >= mean(t, v) for v in values if row(kind, v) in t.rows)


CARD = Card(
    title="FedCOG, Figure 3: heterogeneity, disagreement, distillation",
    setup=SETUP | CIFAR10,
    columns=COLUMNS,
    rows=ROWS,
    work=later,
    numbers=shared.NUMBERS,
    claims=(
        Claim(
            "FedAvg, FedProx and FedCOG rise from beta 0.1 to 5",
            "generally, FL methods have worse performance under the more heterogeneous scenarios",
            lambda t: all(t.above((m, "beta 5.0"), (m, "beta 0.1")) for m in (*MORE, DEFAULT)),
        ),
        Claim(
            "FedCOG highest at every beta",
            "FedCOG consistently performs the best across different heterogeneity levels",
            lambda t: all(t.mean((DEFAULT, c)) >= t.mean((m, c)) for c in t.columns if c != "NIID-2" for m in MORE),
        ),
        Claim("lambda_dis = 0.1 best", BETTER, default_best("dis", DIS)),
        Claim("lambda_kd = 0.01 best", BETTER, default_best("kd", KD)),
    ),
    open=(*shared.OPEN, "the two baselines of (a): FedAvg and FedProx; the figure's numbers, which its text lacks"),
    figure=panels(
        Panel("", "beta", "accuracy on the test set, %",
              {m: over_setting({b: (m, f"beta {b}") for b in BETAS}, "accuracy", 100.0) for m in (*MORE, DEFAULT)}),
        weights("dis", DIS), weights("kd", KD),
    ),
    scales={
        "smoke": Scale("It runs.", shared.SMOKE, (0,), rows={"FedAvg": {}}, columns={"beta 5.0": {}}),
        "cpu": Scale(f"beta 0.1 and 5; {shared.FEWER}.", shared.CPU, rows=shared.after(20, ROWS),
                     columns={"beta 0.1": {}, "beta 5.0": {}, "NIID-2": {}}),
        "paper": Scale("As the paper has it."),
    },
)  # fmt: skip
