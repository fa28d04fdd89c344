"""FedCOG, Table 3: one round of FedCOG on top of five algorithms. `fedcog-flair` has its rows of FLAIR."""

from __future__ import annotations

from itertools import product
from statistics import fmean

from apiece.papers.fedcog import _setup as shared
from apiece.papers.fedcog._setup import BASELINES, COLUMNS, SETUP, cog
from apiece.papers.fedcog._work import later
from apiece.reproduce.card import Card, Claim, Scale
from apiece.reproduce.table import every

METHODS = ("FedAvg", "FedAvgM", "FedProx", "SCAFFOLD", "MOON")
PLAIN = {m: BASELINES[m] for m in METHODS}
ROWS = shared.rows(PLAIN | {f"{m} + FedCOG": cog(text if m != "FedAvg" else "") for m, text in PLAIN.items()})
PUBLISHED = """
FedAvg           63.34 49.30
FedAvgM          61.71 44.73
FedProx          64.15 50.35
SCAFFOLD         63.67 46.47
MOON             62.56 49.64
FedAvg_+_FedCOG    64.47 49.50
FedAvgM_+_FedCOG   64.63 45.14
FedProx_+_FedCOG   64.87 50.89
SCAFFOLD_+_FedCOG  65.36 51.26
MOON_+_FedCOG      63.24 50.72"""


def gain(table, name, method, column):
    """How much a method gains by FedCOG in the mean."""
    return table.mean((f"{method} + FedCOG", column), name) - table.mean((method, column), name)


CARD = Card(
    title="FedCOG, Table 3: one round of FedCOG on top of other algorithms",
    setup=SETUP | {"rounds": 51},
    columns={c: COLUMNS[c] for c in ("CIFAR-10 NIID-1", "CIFAR-10 NIID-2")},
    rows=ROWS,
    numbers=shared.NUMBERS,
    work=later,
    published={"accuracy": shared.means(PUBLISHED)},
    claims=(
        Claim(
            "FedCOG gains with every method in every column",
            "FedCOG consistently brings performance gain when combined with these baseline methods, indicating its "
            "plug-and-play property.",
            lambda t: every(lambda at: gain(t, "accuracy", *at) > 0, product(METHODS, t.columns)),
        ),
        Claim(
            "the mean gain after one round is above half a point",
            "there is already evident performance improvement through only 1 round of FedCOG",
            lambda t: fmean(gain(t, "accuracy", *at) for at in product(METHODS, t.columns)) > 0.005,
        ),
    ),
    open=(*shared.OPEN, *shared.OPEN_BASELINES, "FLAIR, where FedCOG has 3 rounds: in `fedcog-flair`"),
    scales={
        "smoke": Scale(
            "It runs, and says nothing more.", shared.SMOKE, (0,), columns={"CIFAR-10 NIID-1": {}},
            rows=shared.rows({"SCAFFOLD + FedCOG": cog("scaffold", wait=1, steps=2, samples=16)}),
        ),
        "cpu": Scale(
            "21 rounds (the last of FedCOG) of 100 local steps instead of 51 of 400. One seed: its twenty cells take "
            "about three hours of two cores.",
            shared.CPU | {"rounds": 21}, (0,), rows=shared.after(20, ROWS),
        ),
        "paper": Scale("As the paper has it."),
    },
)  # fmt: skip
