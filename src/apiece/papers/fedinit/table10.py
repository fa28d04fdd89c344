"""FedInit, Table 10: the divergence as it defines it, over all clients, with each reading of Algorithm 1."""

from __future__ import annotations

from apiece.papers.fedinit._setup import (
    COLUMNS,
    DRIFT,
    FEW_HARD,
    HARD,
    IN_SMALL,
    METHODS,
    NEARLY_ALL,
    NUMBERS,
    OPEN,
    READINGS,
    SETUP,
    SMALL,
    SMOKE,
    WORK_DRIFT,
)  # fmt: skip
from apiece.reproduce.card import Card, Claim, Scale
from apiece.reproduce.figures import by_column

BOTH = {"FedInit, delta, first current": {"algorithm": "fedinit(beta=0.1, aggregate=delta, first=current)"}}
READ = {"FedInit": METHODS["FedInit"], **READINGS, **BOTH}
TOGETHER = (
    "This offset beta (w^t - w_{i,K}^{t-1}) in the relaxed initialization (RI) provides a correction that could help "
    "local models gather together after the local training process"
)


def closer(row: str, number: str = "divergence_all"):
    """Whether a reading's divergence lies below FedAvg's by more than its spread, in every column."""
    return lambda t: all(t.above(("FedAvg", c), (row, c), number) for c in t.columns)


CARD = Card(
    title="FedInit, Table 10: the divergence term",
    setup=SETUP | {"drift": "all"},
    columns={name: COLUMNS[name] for name in (HARD, FEW_HARD)},
    rows={"FedAvg": METHODS["FedAvg"], **READ},
    work=WORK_DRIFT,
    numbers=DRIFT | NUMBERS,
    claims=(
        *(Claim(f"{row}: less divergence over all clients than FedAvg", TOGETHER, closer(row)) for row in READ),
        *(
            Claim(f"{row}: less divergence over the round's clients", TOGETHER, closer(row, "divergence_selected"))
            for row in ("FedInit", "FedInit, delta")
        ),
    ),
    open=(
        *OPEN,
        "Table 10 lists symbols and has no results. It defines the divergence, (1/C) sum_i ||w_{i,K}^{t-1} - w^t||^2, "
        "over all C clients, where the authors' code takes the round's clients alone: this card measures both, with "
        "each reading of Algorithm 1",
    ),
    figure=by_column("divergence", "round", "divergence over all clients", log=True),
    scales={
        "smoke": Scale("It runs, and says nothing more.", SMOKE, (0,), columns={HARD: {}}, rows={"FedInit, delta": {}}),
        "cpu": Scale(f"{IN_SMALL}, in 60 rounds of 500, in one column. {NEARLY_ALL}", SMALL, columns={HARD: {}}),
        "paper": Scale("As the paper has it."),
    },
)  # fmt: skip
