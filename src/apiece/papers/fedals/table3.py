"""FedALS, Table 3: how many layers belong to the body, which is averaged ten times less often than the head."""

from __future__ import annotations

from apiece.papers.fedals._setup import COLUMNS, FIRST, NUMBERS, OPEN, SETUP, SMOKE, WORK
from apiece.reproduce.card import Card, Claim, Scale, Search
from apiece.reproduce.figures import by_column
from apiece.reproduce.table import Table

LAYERS = (20, 16, 12, 8, 4, 1)
WITHOUT_HEAD = "L = 19"  # the convolutions, as Tables 1 and 2 have it: Table 3 lacks it


def own(t: Table) -> list[str]:
    """The rows that the paper's table has, of those that were run."""
    return [row for row in t.rows if row != WITHOUT_HEAD]


def best(t: Table) -> bool:
    """Whether L = 16 has the highest mean of the table's rows in every column."""
    return t.highest("L = 16", rows=own(t))


def differ(t: Table) -> bool:
    """Whether in every column the highest and the lowest mean of the table's rows are 2 points apart or more."""
    means = [[t.mean((row, c)) for row in own(t)] for c in t.columns]
    return all(max(of) - min(of) >= 0.02 for of in means)


CARD = Card(
    title="FedALS, Table 3: the number of layers in the body",
    setup=SETUP,
    columns={name: COLUMNS[name] for name in ("SVHN", "CIFAR-10", "CIFAR-100", "MNIST")},
    rows={f"L = {layers}": {"algorithm": f"fedals(alpha=10, head={layers})"} for layers in LAYERS}
    | {WITHOUT_HEAD: {"algorithm": "fedals(alpha=10)"}},
    work=WORK,
    numbers=NUMBERS,
    published={
        "accuracy": {
            "L = 20": [(69.91, 1.60), (43.83, 4.23), (47.81, 1.23), None],
            "L = 16": [(71.12, 4.71), (46.87, 1.11), (47.82, 0.87), None],
            "L = 12": [(67.60, 4.74), (41.25, 2.83), (42.49, 1.43), None],
            "L = 8": [(63.81, 4.28), (37.79, 3.451), (40.85, 0.94), None],
            "L = 4": [(63.39, 4.46), (37.30, 3.10), (41.83, 1.08), None],
            "L = 1": [(60.58, 1.97), (40.13, 3.08), (38.80, 3.05), None],
        }
    },
    claims=(
        Claim(
            "L = 16 has the highest mean of the table's L, in every column",
            "choosing phi to be the first 16 layers and performing less aggregation for that seems to be the most "
            "effective option", best,
        ),
        Claim(
            "the best and the worst L are 2 points apart or more, in every column",
            "illustrating how different combinations of phi and h influence the model performance in FedALS", differ,
        ),
    ),
    open=(
        *OPEN, "with L = 20 every layer is averaged at every tenth synchronization",
        "its best L, 16, has 71.12 % on SVHN, where Tables 1 and 2 have 81.17 % with the 19 convolutions as body; this "
        "table lacks L = 19, which is run beside it at the scale paper and takes no part in the claims",
    ),
    scales={
        "smoke": Scale(
            "It runs, and says nothing more.", SMOKE | {"model": "resnet20", "rounds": 1}, (0,), columns={"MNIST": {}},
            rows={"L = 16": {}, "L = 1": {}},
        ),
        "cpu": Scale(
            "MNIST instead of the paper's data, 1,000 iterations instead of 20,000, four values of L, and one step "
            "size for all, not searched.",
            {"rounds": 200}, columns={"MNIST": {}}, rows={f"L = {n}": {} for n in (20, 16, 8, 1)},
        ),
        "paper": Scale("As the paper has it.", search=Search("lr", FIRST),
                       columns={name: {} for name in ("SVHN", "CIFAR-10", "CIFAR-100")}),
    },
    figure=by_column("curve", "round", "accuracy, %", 100.0),
)  # fmt: skip
