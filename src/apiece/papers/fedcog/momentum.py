"""FedCOG, Table 1 without momentum: the optimizer as the paper's text names it."""

from __future__ import annotations

from dataclasses import replace

from apiece.papers.fedcog._claims import HIGHEST, SATURATED
from apiece.papers.fedcog._setup import SETUP
from apiece.papers.fedcog.table1 import CARD as TABLE1
from apiece.reproduce.card import Claim, Scale

NEAR = 2.0  # points


def near(table, row):
    """Whether a row's mean is near the paper's in all columns."""
    paper = {column: TABLE1.paper("accuracy", row, column) for column in table.columns}
    return all(its and abs(100 * table.mean((row, column)) - its[0]) < NEAR for column, its in paper.items())


CARD = replace(
    TABLE1,
    title="FedCOG, Table 1 without momentum: the optimizer as the paper's text names it",
    setup=SETUP | {"optimizer": "sgd(weight_decay=1e-05)"},
    claims=(
        Claim(
            "FedAvg within two points of Table 1's",
            "For all datasets, we use SGD as the optimizer with learning rate 0.01.",
            lambda t: near(t, "FedAvg"),
        ),
        *HIGHEST,
        SATURATED._replace(scales=("cpu", "paper")),  # here all 70 rounds are run at both
    ),
    open=(
        "momentum: none, as the paper names none; weight decay 1e-5 and batches of 64: the authors' code's",
        *TABLE1.open[1:],
    ),
    scales={
        "smoke": TABLE1.scales["smoke"],
        "cpu": Scale(
            "Fashion-MNIST, in full, with four rows.",
            columns={c: {} for c in TABLE1.columns if c.startswith("Fashion")},
            rows={row: {} for row in ("FedAvg", "SCAFFOLD", "FedCOG", "FedCOG by counts")},
        ),
        "paper": Scale("As the paper has it."),
    },
)
