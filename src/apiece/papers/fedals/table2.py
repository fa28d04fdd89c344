"""FedALS, Table 2: accuracy and communicated numbers over alpha, on data that are sorted by label."""

from __future__ import annotations

from apiece.papers.fedals._setup import COLUMNS, FIRST, NUMBERS, OPEN, SETUP, SMOKE, WORK
from apiece.reproduce.card import Card, Claim, Scale, Search
from apiece.reproduce.figures import by_column
from apiece.reproduce.table import Table

ALPHAS = (1, 5, 10, 25, 50, 100)


def rises(t: Table) -> bool:
    """Whether alpha = 5 (where it was run) and alpha = 10 are above FedAvg in every column, by their means."""
    small = [f"alpha = {a}" for a in (5, 10) if f"alpha = {a}" in t.rows]
    return all(t.mean((row, c)) > t.mean(("alpha = 1", c)) for row in small for c in t.columns)


def no_further(t: Table) -> bool:
    """Whether no larger alpha that was run is above alpha = 10 anywhere, though that is above FedAvg."""
    large = [f"alpha = {a}" for a in (25, 50, 100) if f"alpha = {a}" in t.rows]
    return rises(t) and t.highest("alpha = 10", rows=large)


CARD = Card(
    title="FedALS, Table 2: alpha, accuracy and communicated numbers",
    setup=SETUP,
    columns={name: COLUMNS[name] for name in ("SVHN", "CIFAR-10", "MNIST")},
    rows={f"alpha = {a}": {"algorithm": f"fedals(alpha={a})" if a > 1 else "fedavg"} for a in ALPHAS},
    work=WORK,
    numbers=NUMBERS,
    published={
        "accuracy": {
            "alpha = 1": [(70.10, 3.30), (46.51, 0.71), None],
            "alpha = 5": [(81.07, 2.78), (52.01, 3.02), None],
            "alpha = 10": [(81.17, 2.14), (52.24, 3.65), None],
            "alpha = 25": [(72.01, 15.65), (38.14, 6.41), None],
            "alpha = 50": [(63.77, 5.20), (28.53, 6.41), None],
            "alpha = 100": [(58.37, 7.15), (28.17, 3.2), None],
        },
        "sent": {
            f"alpha = {a}": [sent, sent, None]
            for a, sent in zip(ALPHAS, (2344.0, 473.0, 239.0, 99.0, 52.0, 29.0), strict=True)
        },
    },
    claims=(
        Claim(
            "alpha = 10, and 5 where it was run, above FedAvg",
            "when we increase alpha from 1 (FedAvg), we initially witness an enhancement in accuracy", rises,
        ),
        Claim(
            "that, and no larger alpha that was run above alpha = 10",
            "beyond a certain threshold (alpha = 10), further increment in alpha ceases to contribute to performance "
            "improvement", no_further,
        ),
        Claim(
            "alpha = 10 sends less than 0.11 of FedAvg (its Table 2: 0.239 of 2.344 billion)",
            "aggregation and communication costs are reduced as compared to FedAvg",
            lambda t: all(
                t.mean(("alpha = 10", c), "sent") < 0.11 * t.mean(("alpha = 1", c), "sent") for c in t.columns
            ),
        ),
    ),
    open=OPEN,
    scales={
        "smoke": Scale("It runs, and says nothing more.", SMOKE, (0,), columns={"MNIST": {}}),
        "cpu": Scale(
            "MNIST instead of SVHN and CIFAR-10, 1,000 iterations instead of 20,000, three values of alpha, and one "
            "step size for all, not searched.",
            {"rounds": 200, "eval_every": 20}, columns={"MNIST": {}}, rows={f"alpha = {a}": {} for a in (1, 10, 100)},
        ),
        "paper": Scale("As the paper has it.", columns={"SVHN": {}, "CIFAR-10": {}}, search=Search("lr", FIRST)),
    },
    figure=by_column("curve", "round", "accuracy, %", 100.0),
)  # fmt: skip
