"""FedAvg-P's and Scaffold-P's special cases: nothing is personal, or nothing is shared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apiece.papers.fedavg_p._setup import DERIVED, NUMBERS, OPEN, SETUP, SMOKE, work
from apiece.reproduce.card import Card, Claim, Scale
from apiece.reproduce.figures import by_column
from apiece.reproduce.table import Table

ALONE = {"shared": 1, "sigma_x": 0.0, "cohort": 1.0, "reduced": "local"}
COLUMNS = {
    "FedAvg-P, nothing personal": {"whole": "fedavg_p(personal=y)", "reduced": "fedavg", "shared": 1.0},
    "Scaffold-P, nothing personal": {"whole": "scaffold_p(personal=y)", "reduced": "scaffold", "shared": 1.0},
    "FedAvg-P, nothing shared": {"whole": "fedavg_p(personal=y)", **ALONE},
    "Scaffold-P, nothing shared": {"whole": "scaffold_p(personal=y)", **ALONE},
}


def one(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The curve of the algorithm that the row names: the paper's own, or what it reduces to."""
    made = work(dict(settings) | {"algorithm": settings[settings["which"]]}, folder)
    (t, x), (_, y) = made["curve"], made["curve_y"]
    return made | {"curve": [t, [a + b for a, b in zip(x, y, strict=True)]]}


def alike(*columns: str):
    """Whether both rows have the same curve in these columns, up to rounding."""
    return lambda t: all(_gap(t, c) < 1e-4 for c in columns)


def _gap(t: Table, column: str) -> float:
    own, other = (t.curve((row, column), "curve").mean for row in CARD.rows)
    return float((abs(own - other) / other).max())


CARD = Card(
    title="FedAvg-P and Scaffold-P: special cases",
    setup=SETUP | {"rounds": 200},
    columns=COLUMNS,
    rows={"the algorithm": {"which": "whole"}, "what it reduces to": {"which": "reduced"}},
    work=one,
    numbers=NUMBERS,
    derived=DERIVED,
    claims=(
        Claim(
            "FedAvg", "eliminating the partial variables transforms the proposed algorithm into the FedAvg algorithm "
            "for traditional FL problem (2) with a single shared variable",
            alike("FedAvg-P, nothing personal"),
        ),
        Claim(
            "SCAFFOLD", "When the personal variables are omitted from the algorithm, Scaffold-P effectively reverts to "
            "the Scaffold algorithm designed for problem (2) with a single shared variable",
            alike("Scaffold-P, nothing personal"),
        ),
        Claim(
            "parallel SGD", "removing the shared variable and setting [all clients to take part] turns the algorithm "
            "into parallel stochastic gradient descent (SGD) for solving the fully personalized FL problem (3)",
            alike("FedAvg-P, nothing shared", "Scaffold-P, nothing shared"),
        ),
    ),
    open=(*OPEN, "nothing is shared: nothing but the first pixel, which is black in every image, so that x stays 0",
           "both have the same noise and the same participants; curves are alike if they differ by less than "
                 "10^-4 of their value everywhere",
           "FedSim, which the paper says FedAvg-P is with outer steps of 1, is no column: `fedsim` is made of the same "
           "pieces as `fedavg_p` here, so both curves would be one whatever these compute"),
    figure=by_column("curve", "outer loops", "squared gradient norm of all variables", log=True),
    scales={
        "smoke": Scale("It runs, and says nothing more.", SMOKE, (0,)),
        "cpu": Scale("In full, on 500 points of each client, in 200 rounds."),
        "paper": Scale("In full, on all of the 60,000 points.", {"points": 3000, "rounds": 2000}),
    },
)  # fmt: skip
