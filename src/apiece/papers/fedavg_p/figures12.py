"""FedAvg-P's Figure 1 and Scaffold-P's Figure 2: step size, participants without noise in y, and local steps."""

from __future__ import annotations

from apiece.papers.fedavg_p._setup import NUMBERS, OPEN, SETUP, SMOKE, work
from apiece.reproduce.card import Card, Claim, Scale
from apiece.reproduce.figures import Panel, over_rounds, panels
from apiece.reproduce.table import Table

COLUMNS = {"FedAvg-P": "fedavg_p(personal=y)", "Scaffold-P": "scaffold_p(personal=y)"}
STEPS = {f"step = {step}": {"lr": step} for step in (0.05, 0.1, 0.2)}
COHORTS = {f"m = {m}, sigma_y = 0": {"cohort": m, "sigma_y": 0.0} for m in (2, 5, 20)}
LOCAL = {f"K = {k}": {"steps": str(k)} for k in (2, 5, 20)}

STEP = ("a smaller value of [the step size] leads to a smaller convergence error when the algorithm reaches a steady "
        "state, as well as a slower convergence rate")  # fmt: skip


def grows(rows: dict, name: str, *columns: str):
    """Whether a number grows from row to row, in these columns, by more than its spread."""
    pairs = list(zip(rows, list(rows)[1:], strict=False))
    return lambda t: all(t.above((more, c), (less, c), name) for c in columns or COLUMNS for less, more in pairs)


def same_error(t: Table) -> bool:
    """Whether Scaffold-P's errors over K differ by less than a factor of 2."""
    errors = [t.mean((k, "Scaffold-P"), "floor") for k in LOCAL]
    return max(errors) < 2 * min(errors)


def panel(title: str, column: str, rows: dict) -> Panel:
    """One panel of a figure."""
    lines = {row: over_rounds((row, column), "curve") for row in rows}
    return Panel(f"{column}: {title}", "outer loops", "squared norm of grad_x f", lines, log=True)


PARTS = {"step size": STEPS, "participants": COHORTS, "local steps": LOCAL}
CARD = Card(
    title="FedAvg-P and Scaffold-P, Figures 1 and 2: step size, participants, local steps",
    setup=SETUP,
    columns={name: {"algorithm": text} for name, text in COLUMNS.items()},
    rows=STEPS | COHORTS | LOCAL,
    work=work,
    numbers=NUMBERS,
    claims=(
        Claim("a smaller step has a smaller error", STEP, grows(STEPS, "floor")),
        Claim("a smaller step is slower", STEP, grows(dict(reversed(STEPS.items())), "reached")),
        Claim(
            "more participants have a smaller error", "with a fixed step size, increasing the number of participating "
            "clients results in smaller convergence error",
            grows(dict(reversed(COHORTS.items())), "floor"),
        ),
        Claim(
            "more local steps are faster", "increasing the value of [K] accelerates the convergence of both algorithms",
            grows(dict(reversed(LOCAL.items())), "reached"),
        ),
        Claim(
            "FedAvg-P's error grows with K",
            "a larger value of [K] leads to a larger gradient norm in the steady state for the FedAvg-P algorithm",
            grows(LOCAL, "floor", "FedAvg-P"),
        ),
        Claim(
            "Scaffold-P's error does not depend on K (by less than a factor of 2)", "the values of [K] "
            "and [b] do not influence the steady-state convergence error",
            same_error,
        ),
        Claim(
            "Scaffold-P's error is much smaller (less than half, for each K)", "Scaffold-P converges with a much "
            "smaller error than FedAvg-P in the steady state",
            lambda t: all(t.mean((k, "Scaffold-P"), "floor") < 0.5 * t.mean((k, "FedAvg-P"), "floor") for k in LOCAL),
        ),
    ),
    open=OPEN,
    figure=panels(*(panel(title, column, rows) for column in COLUMNS for title, rows in PARTS.items())),
    scales={
        "smoke": Scale("It runs, and says nothing more.", SMOKE, (0,), rows={"step = 0.2": {}, "K = 2": {}}),
        "cpu": Scale("In full, on 500 points of each client."),
        "paper": Scale("In full, on all of the 60,000 points.", {"points": 3000}),
    },
)  # fmt: skip
