"""FedAvg-P's Figure 1 and Scaffold-P's Figure 2: step size, participants without noise in y, and local steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from apiece.papers.fedavg_p._setup import DERIVED, NUMBERS, OPEN, SETUP, SMOKE, work
from apiece.reproduce.card import Card, Claim, Scale
from apiece.reproduce.figures import Panel, over_rounds, panels

COLUMNS = {"FedAvg-P": {"algorithm": "fedavg_p(personal=y)"}, "Scaffold-P": {"algorithm": "scaffold_p(personal=y)"}}
STEPS = {f"step = {step}": {"lr": step} for step in (0.05, 0.1, 0.2)}
COHORTS = {f"m = {m}, sigma_y = 0": {"cohort": m, "sigma_y": 0.0} for m in (2, 5, 20)}
LOCAL = {f"K = {k}": {"steps": str(k)} for k in (2, 5, 20)}
OVER_K = {"K = 2": "K = 2", "K = 5": "K = 5", "K = 10": "step = 0.2", "K = 20": "K = 20"}  # the row of each K
STEP = ("a smaller value of [the step size] leads to a smaller convergence error when the algorithm reaches a steady "
        "state, as well as a slower convergence rate")
MORE = "with a fixed step size, increasing the number of participating clients results in smaller convergence error"
FASTER = "increasing the value of [K] accelerates the convergence of both algorithms"
GROWS = "a larger value of [K] leads to a larger gradient norm in the steady state for the FedAvg-P algorithm"
SAME = "the values of [K] and [b] do not influence the steady-state convergence error"
SMALLER = "Scaffold-P converges with a much smaller error than FedAvg-P in the steady state"


def grows(rows: Iterable[str], name: str, *columns: str):
    """Whether a number grows from row to row, in these columns, by more than its spread."""
    pairs = [((more, c), (less, c)) for less, more in pairwise(rows) for c in columns or COLUMNS]
    return lambda t: all(t.above(*pair, name) for pair in pairs)


def same(name: str):
    """Whether Scaffold-P's errors over K differ by less than a factor of 2."""
    return lambda t: max(errors := [t.mean((k, "Scaffold-P"), name) for k in OVER_K.values()]) < 2 * min(errors)


def smaller(name: str):
    """Whether Scaffold-P's error is less than half of FedAvg-P's, for each K."""
    return lambda t: all(t.mean((k, "Scaffold-P"), name) < 0.5 * t.mean((k, "FedAvg-P"), name) for k in OVER_K.values())


def of_error(name: str, said: str) -> tuple[Claim, ...]:
    """The claims of the error, which is this number."""
    return (
        Claim(f"a smaller step has a smaller error {said}", STEP, grows(STEPS, name)),
        Claim(f"more participants have a smaller error {said}", MORE, grows(reversed(COHORTS), name)),
        Claim(f"FedAvg-P's error {said} grows with K", GROWS, grows(OVER_K.values(), name, "FedAvg-P")),
        Claim(f"Scaffold-P's error {said} does not depend on K (by less than a factor of 2)", SAME, same(name)),
        Claim(f"Scaffold-P's error {said} is much smaller (less than half, for each K)", SMALLER, smaller(name)),
    )


def panel(title: str, column: str, rows: Mapping[str, str]) -> Panel:
    """One panel, of rows by label."""
    lines = {label: over_rounds((row, column), "curve") for label, row in rows.items()}
    return Panel(f"{column}: {title}", "outer loops", "squared norm of grad_x f", lines, log=True)


PARTS = {"step size": {row: row for row in STEPS}, "participants": {row: row for row in COHORTS}, "local steps": OVER_K}
CARD = Card(
    title="FedAvg-P and Scaffold-P, Figures 1 and 2: step size, participants, local steps",
    setup=SETUP,
    columns=COLUMNS,
    rows=STEPS | COHORTS | LOCAL,
    work=work,
    numbers=NUMBERS,
    derived=DERIVED,
    claims=(
        Claim("a smaller step is slower", STEP, grows(reversed(STEPS), "reached")),
        Claim("more local steps are faster", FASTER, grows(reversed(OVER_K.values()), "reached")),
        *of_error("floor", "in x"), *of_error("floor_both", "in x and y"),
    ),
    open=OPEN,
    figure=panels(*(panel(title, column, rows) for column in COLUMNS for title, rows in PARTS.items())),
    scales={
        "smoke": Scale("It runs, and says nothing more.", SMOKE, (0,), rows={"step = 0.2": {}, "K = 2": {}}),
        "cpu": Scale("In full, on 500 points of each client."),
        "paper": Scale("In full, on all of the 60,000 points.", {"points": 3000}),
    },
)  # fmt: skip
