"""FedCOG, Table 4: the local time of a client in 51 rounds, and the accuracy."""

from __future__ import annotations

from apiece.papers.fedcog import _setup as shared
from apiece.papers.fedcog._setup import BASELINES, SETUP, cog
from apiece.reproduce.card import Card, Claim, Number, Scale
from apiece.reproduce.table import every
from apiece.reproduce.work import last, runs

ROWS = shared.rows({m: BASELINES[m] for m in ("FedAvg", "FedProx", "MOON")} | {"FedCOG": cog()})
CIFAR = "CIFAR-10 NIID-1"


def seconds(run):
    """The seconds of one client's local work in all rounds: clients run one after the other."""
    return float(run.series("seconds")[1].sum()) / run.config["clients"]


def cheaper(table, row):
    """FedCOG is more accurate than a row by more than chance, in less time."""
    both = (("FedCOG", CIFAR), (row, CIFAR))
    return table.above(*both) and table.mean(both[0], "seconds") < table.mean(both[1], "seconds")


CARD = Card(
    title="FedCOG, Table 4: local time and accuracy",
    setup=SETUP | {"rounds": 51, "eval_every": 10, "lift": "sequential"},
    columns={CIFAR: shared.COLUMNS[CIFAR]},
    rows=ROWS,
    work=runs(accuracy=last("global_accuracy"), seconds=seconds),
    numbers={"seconds": Number("local time of a client, seconds", 1, timed=True), **shared.NUMBERS},
    published={
        "seconds": {"FedAvg": [(983, 100)], "FedProx": [(1051, 87)], "MOON": [(1276, 147)], "FedCOG": [(1001, 98)]},
        "accuracy": {"FedAvg": [63.34], "FedProx": [64.57], "MOON": [64.44], "FedCOG": [65.59]},
    },
    claims=(
        Claim(
            "FedCOG has the highest accuracy",
            "FedCOG introduces moderate training and generating time while achieving the highest accuracy",
            lambda t: t.highest("FedCOG"),
        ),
        Claim(
            "FedCOG takes less than a tenth more time than FedAvg",
            "FedCOG introduces minor training cost while achieves the highest performance.",
            lambda t: t.mean(("FedCOG", CIFAR), "seconds") < 1.1 * t.mean(("FedAvg", CIFAR), "seconds"),
        ),
        Claim(
            "FedCOG above FedProx and MOON beyond chance, in less time",
            "compared with FedProx and MOON, FedCOG achieves much higher performance with the least computation time",
            lambda t: every(lambda row: cheaper(t, row), ("FedProx", "MOON")),
        ),
    ),
    open=(
        *shared.OPEN,
        "which rounds are FedCOG's: the last of 51, as in Figure 2, which has the same accuracies; there the other "
        "methods, too, have one round after 50 of FedAvg, and here 51 of their own",
    ),
    scales={
        "smoke": Scale(
            "It runs, and says nothing more.", shared.SMOKE, (0,),
            rows=shared.rows({"FedCOG": cog(wait=1, steps=2, samples=16)}),
        ),
        "cpu": Scale(
            "21 rounds (the last of FedCOG) of 100 local steps instead of 51 of 400.",
            {"rounds": 21, "steps": "100"}, rows=shared.after(20, ROWS),
        ),
        "paper": Scale("As the paper has it."),
    },
)  # fmt: skip
