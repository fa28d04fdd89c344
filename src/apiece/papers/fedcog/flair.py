"""FedCOG, Table 3's rows of FLAIR: three rounds of FedCOG on top of five algorithms."""

from __future__ import annotations

from dataclasses import replace

from apiece.papers.fedcog import _setup as shared
from apiece.papers.fedcog._setup import cog
from apiece.papers.fedcog.table2 import CARD as TABLE2
from apiece.papers.fedcog.table2 import METHODS as TEXTS
from apiece.papers.fedcog.table3 import METHODS, gain
from apiece.reproduce.card import Claim, Scale
from apiece.reproduce.table import every

NAMES = {"f1": "O-F1", "class_f1": "C-F1"}
PLAIN = {m: TEXTS[m] for m in METHODS}
ROWS = shared.rows(PLAIN | {f"{m} + FedCOG": cog(t if m != "FedAvg" else "", wait=400) for m, t in PLAIN.items()})
PAPER = shared.means("""
FedAvg    47.91 20.63
FedAvgM   48.77 20.11
FedProx   45.71 18.66
SCAFFOLD  42.50 16.74
MOON      44.99 18.83
FedAvg_+_FedCOG    51.35 20.89
FedAvgM_+_FedCOG   51.60 21.98
FedProx_+_FedCOG   54.57 19.08
SCAFFOLD_+_FedCOG  45.22 18.96
MOON_+_FedCOG      52.78 19.92""")


def gains(name):
    """FedCOG gains with every method in a number."""
    return lambda t: every(lambda method: gain(t, name, method, "FLAIR") > 0, METHODS)


CARD = replace(
    TABLE2,
    title="FedCOG, Table 3 on FLAIR: three rounds of FedCOG on top of other algorithms",
    setup={**TABLE2.setup, "rounds": 403, "metrics": list(NAMES)},
    rows=ROWS,
    numbers={name: TABLE2.numbers[name] for name in NAMES},
    published={name: {row: [line[k]] for row, line in PAPER.items()} for k, name in enumerate(NAMES)},
    claims=(
        Claim(
            "FedCOG gains with every method in both numbers",
            "FedCOG consistently brings performance gain when combined with these baseline methods, indicating its "
            "plug-and-play property.",
            lambda t: every(lambda name: gains(name)(t), NAMES),
        ),
        Claim(
            "FedCOG adds a tenth to FedProx's O-F1",
            "Specifically, it can bring 19% O-F1 improvement to FedProx",
            lambda t: gain(t, "f1", "FedProx", "FLAIR") > 0.1 * t.mean(("FedProx", "FLAIR"), "f1"),
        ),
    ),
    open=(*TABLE2.open[:-1], "of the 403 rounds FedCOG has the last three, and the other rows all"),
    scales={
        "smoke": replace(
            TABLE2.scales["smoke"], rows=shared.rows({"FedProx + FedCOG": cog("fedprox(mu=0.01)", wait=1, steps=2)})
        ),
        "cpu": Scale(
            "81 rounds (the last of FedCOG) instead of 403 (3), on images of 32 x 32 with the CNN for CIFAR-10.",
            TABLE2.scales["cpu"].changes,
            rows={row: {"algorithm": s["algorithm"].replace("wait=400", "wait=80")} for row, s in ROWS.items()},
        ),
        "paper": Scale("As the paper has it."),
    },
)
