"""FedInit where few clients take part: which form of its aggregation, and which beta, bears it?"""

from __future__ import annotations

from apiece.papers.fedinit._setup import (
    BEARS,
    BETTER,
    COLUMNS,
    FEW_HARD,
    HARD,
    IN_SMALL,
    METHODS,
    NUMBERS,
    OPEN,
    READINGS,
    SETUP,
    SHORT,
    SMOKE,
    WORK,
    drop,
    with_relaxed,
)  # fmt: skip
from apiece.reproduce.card import Card, Claim, Scale
from apiece.reproduce.figures import by_column

FORMS = {
    "FedInit": METHODS["FedInit"],
    "FedInit, delta": READINGS["FedInit, delta"],
    "FedInit, beta = 0.04": with_relaxed("FedAvg", 0.04),
}


def kept(row: str):
    """Whether a form of FedInit is not below FedAvg by more than its spread, where 5 % of the clients take part."""
    return lambda t: not t.above(("FedAvg", FEW_HARD), (row, FEW_HARD))


def bears(row: str):
    """Whether a form of FedInit loses less than FedAvg from 10 % of 100 clients to 5 % of 200."""
    return lambda t: drop(t, row) < drop(t, "FedAvg")


CARD = Card(
    title="FedInit where few clients take part: the two forms of its aggregation, and a smaller beta",
    setup=SETUP,
    columns={name: COLUMNS[name] for name in (HARD, FEW_HARD)},
    rows={"FedAvg": METHODS["FedAvg"], **FORMS},
    work=WORK,
    numbers=NUMBERS,
    claims=(
        *(Claim(f"{row} not below FedAvg where 5 % take part", BETTER, kept(row)) for row in FORMS),
        *(Claim(f"{row} loses less than FedAvg from 10 to 5 %", BEARS, bears(row), ("paper",)) for row in FORMS),
    ),
    open=(
        "this is no table of the paper's: Table 4 has these settings, with one beta that it does not name. By "
        "Algorithm 1 the server's model may run away where less than beta / (1 + beta) of the clients take part: 9 % "
        "for beta = 0.1, 4 % for 0.04",
        *OPEN,
    ),
    figure=by_column("curve", "round", "accuracy (%)", 100),
    scales={
        "smoke": Scale("It runs, and says nothing more.", SMOKE, (0,), columns={HARD: {}}, rows={"FedInit": {}}),
        "cpu": Scale(
            f"{IN_SMALL}, in 120 rounds of 500, where 5 % take part.", SHORT | {"rounds": 120}, columns={FEW_HARD: {}}
        ),
        "paper": Scale("As the paper has it."),
    },
)  # fmt: skip
