"""FedInit, Figure 2: accuracy and divergence over rounds for several beta, of FedAvg and of SCAFFOLD."""

from __future__ import annotations

from apiece.papers.fedinit._setup import (
    COLUMNS,
    DRIFT,
    FEW_HARD,
    IN_SMALL,
    LEAST,
    NEARLY_ALL,
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

METHODS = ("FedAvg", "SCAFFOLD")
ROWS = {f"{m}, beta = {b}": with_relaxed(m, b) for m in METHODS for b in (-0.1, -0.05, 0, 0.05, 0.1)}
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
    """One panel."""
    lines = {row.partition(", ")[2]: over_rounds((row, column), key, factor) for row in ROWS | DELTA if method in row}
    return Panel(f"{method} + RI, {column}", "round", y, lines, log)


DRAWN = (("curve", "accuracy (%)", 100.0, False), ("divergence", "divergence over all clients", 1.0, True))
FORMS = {"0.1": " with beta = 0.1", "0.1, delta": ", by the code's form"}
EFFECTS = {"divergence_all": "divergence", "divergence_selected": "divergence over the round's clients"}
CARD = Card(
    title="FedInit, Figure 2: accuracy and divergence over beta",
    setup=SETUP | {"drift": "all"},
    columns={name: COLUMNS[name] for name in SETTINGS},
    rows=ROWS | DELTA,
    work=WORK_DRIFT,
    numbers=NUMBERS | DRIFT,
    claims=(
        *(Claim(f"less {what}{form}", REDUCES, compared(beta, number, False))
          for beta, form in FORMS.items() for number, what in EFFECTS.items()),
        *(Claim(f"more accuracy{form}", REDUCES, compared(beta, "accuracy", True)) for beta, form in FORMS.items()),
        Claim("2 points or more", LEAST, lambda t: all(
            gain(t, f"{m}, beta = 0.1", f"{m}, beta = 0", c) >= 2.0 for m in METHODS for c in t.columns)),
        Claim("a negative beta has more divergence", NEGATIVE, compared(-0.1, "divergence_all", True, most=True)),
        Claim("a negative beta has less accuracy", NEGATIVE, compared(-0.1, "accuracy", False, most=True)),
    ),
    open=(*OPEN, "the values of beta; the divergence: over all clients (its Table 10) and over the round's (its code)"),
    figure=panels(*(panel(m, c, *how) for m in METHODS for c in SETTINGS for how in DRAWN), across=2),
    scales={
        "smoke": Scale("It runs, and says nothing more.", SMOKE, (0,), columns={FEW_HARD: {}},
                       rows={"FedAvg, beta = -0.1": {}, "SCAFFOLD, beta = 0.1, delta": {}}),
        "cpu": Scale(f"{IN_SMALL}, in 40 rounds of 500, in one column, without beta = -0.05 and 0.05. {NEARLY_ALL}",
                     SHORT, columns={WIDE: {}}, rows={row: {} for row in ROWS | DELTA if "0.05" not in row}),
        "paper": Scale("As the paper has it."),
    },
)  # fmt: skip
