"""FedInit's Figure 1: a best K lies above both ends, and what diverges is judged after the last round."""

from __future__ import annotations

import pytest

from apiece.papers.fedinit.figure1 import BETAS, CARD, EPOCHS, HARD
from apiece.reproduce.standing import HELD, REFUTED, verdict_of
from apiece.reproduce.table import Line, Table

BEST, _, DIVERGES = CARD.claims


def table(rows: dict[str, tuple[float, float]], name: str = "accuracy") -> Table:
    """Each row with two seeds."""
    lines = [
        Line("cpu", row, HARD, seed, {}, {"accuracy": 0.5, "last": 0.5, name: value}, 0.0, {})
        for row, values in rows.items() for seed, value in enumerate(values)
    ]  # fmt: skip
    return Table(tuple(lines), tuple(rows), (HARD,))


@pytest.mark.parametrize(
    ("accuracies", "verdict"),
    [
        ([(0.40, 0.41), (0.45, 0.46), (0.50, 0.51), (0.45, 0.46), (0.40, 0.41)], HELD),
        ([(0.40, 0.41), (0.45, 0.46), (0.46, 0.47), (0.47, 0.48), (0.48, 0.49)], REFUTED),
        ([(0.40, 0.41), (0.45, 0.46), (0.46, 0.47), (0.55, 0.45), (0.48, 0.49)], REFUTED),  # the spread explains it
    ],
)
def test_a_best_k_lies_above_both_ends(accuracies, verdict):
    rows = {f"K = {k}": values for k, values in zip(EPOCHS, accuracies, strict=True)}
    assert verdict_of(BEST, table(rows)) == verdict


@pytest.mark.parametrize(("name", "verdict"), [("last", HELD), ("accuracy", REFUTED)])
def test_what_diverges_is_judged_after_the_last_round(name, verdict):
    """Where only the best of many rounds falls, training has not diverged."""
    rows = {f"beta = {beta}, the paper's mean": (0.5, 0.51) if beta < max(BETAS) else (0.1, 0.11) for beta in BETAS}
    assert verdict_of(DIVERGES, table(rows, name)) == verdict
