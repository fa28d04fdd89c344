"""FedInit, Figure 2: accuracy and divergence over rounds for several beta, of FedAvg and of SCAFFOLD."""

from __future__ import annotations

from apiece.papers.fedinit._setup import (
    COLUMNS,
    DRIFT,
    FEW_HARD,
    IN_SMALL,
    NUMBERS,
    OPEN,
    SETUP,
    SHORT,
    SMOKE,
    WIDE,
    WORK_DRIFT,
    gain,
    with_relaxed,
)  # fmt: skip
from apiece.reproduce.card import Card, Claim, Scale
from apiece.reproduce.figures import Panel, over_rounds, panels

METHODS, BETAS = ("FedAvg", "SCAFFOLD"), (-0.1, -0.05, 0, 0.05, 0.1)
ROWS = {f"{m}, beta = {beta}": with_relaxed(m, beta) for m in METHODS for beta in BETAS}
DELTA = {f"{m}, beta = 0.1, delta": with_relaxed(m, 0.1, ", aggregate=delta") for m in METHODS}
SETTINGS = (WIDE, FEW_HARD)
REDUCES = "the relaxed initialization (RI) effectively reduces the divergence term and improves the test accuracy"
NEGATIVE = (
    "When we select the negative beta, in most cases it will result in greater divergence and worse test accuracy"
)


def compared(beta: object, name: str, higher: bool, most: bool = False):
    """Whether at this beta a number is above (or below) that of beta = 0 by more than its spread, always or mostly."""

    def holds(t):
        pairs = [((f"{m}, beta = {beta}", c), (f"{m}, beta = 0", c)) for m in METHODS for c in t.columns]
        found = [t.above(*(pair if higher else pair[::-1]), name) for pair in pairs]
        return 2 * sum(found) > len(found) if most else all(found)

    return holds


def panel(method: str, column: str, key: str, y: str, factor: float, log: bool) -> Panel:
    """One panel: a number over rounds for all beta."""
    lines = {row.partition(", ")[2]: over_rounds((row, column), key, factor) for row in ROWS | DELTA if method in row}
    return Panel(f"{method} + RI, {column}", "round", y, lines, log)


DRAWN = (("curve", "accuracy (%)", 100.0, False), ("divergence", "divergence over all clients", 1.0, True))
CARD = Card(
    title="FedInit, Figure 2: accuracy and divergence over beta",
    setup=SETUP | {"drift": "all"},
    columns={name: COLUMNS[name] for name in SETTINGS},
    rows=ROWS | DELTA,
    work=WORK_DRIFT,
    numbers=NUMBERS | DRIFT,
    claims=(
        Claim("less divergence with beta = 0.1", REDUCES, compared(0.1, "divergence_all", higher=False)),
        Claim("more accuracy with beta = 0.1", REDUCES, compared(0.1, "accuracy", higher=True)),
        Claim("less divergence, by the code's form", REDUCES, compared("0.1, delta", "divergence_all", higher=False)),
        Claim("more accuracy, by the code's form", REDUCES, compared("0.1, delta", "accuracy", higher=True)),
        Claim(
            "2 points or more",
            "After incorporating the RI, the test accuracy achieves at least 2% improvement on each setup",
            lambda t: all(gain(t, f"{m}, beta = 0.1", f"{m}, beta = 0", c) >= 2.0 for m in METHODS for c in t.columns),
        ),
        Claim("a negative beta has more divergence", NEGATIVE, compared(-0.1, "divergence_all", True, most=True)),
        Claim("a negative beta has less accuracy", NEGATIVE, compared(-0.1, "accuracy", False, most=True)),
    ),
    open=(*OPEN, "the values of beta; the divergence is that over all clients (Table 10)"),
    figure=panels(*(panel(m, c, *how) for m in METHODS for c in SETTINGS for how in DRAWN), across=2),
    scales={
        "smoke": Scale("It runs, and says nothing more.", SMOKE, (0,), columns={FEW_HARD: {}},
                       rows={"FedAvg, beta = -0.1": {}, "SCAFFOLD, beta = 0.1, delta": {}}),
        "cpu": Scale(f"{IN_SMALL}, in 40 rounds of 500, in one column, without beta = -0.05 and 0.05.",
                     SHORT, columns={WIDE: {}}, rows={row: {} for row in ROWS | DELTA if "0.05" not in row}),
        "paper": Scale("As the paper has it."),
    },
)  # fmt: skip
