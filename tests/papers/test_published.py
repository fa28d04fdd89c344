"""The papers' own numbers pass the claims that their sentences make: a claim that they fail is read too strictly, or
its name says that the paper contradicts itself.
"""

from __future__ import annotations

import numpy as np
import pytest

from apiece.reproduce import find
from apiece.reproduce.standing import HELD, OPEN, REFUTED, verdict_of
from apiece.reproduce.table import Line, Table

PRINTED = [name for name in find.names() if find.card(name).published]
CONTRADICTED = {"fedals-table1": 1, "fedinit-table4": 1, "fedinit-table5": 2, "fedinit-table6": 1, "fedinit-table7": 1}
SEEDS, ORDERS = (-1.0, 0.0, 1.0), 20  # three seeds at mean - sd, mean and mean + sd have the paper's mean and sd


def as_printed(card, rng):
    """A table of three seeds with the paper's means and standard deviations, each cell's in another order."""
    lines = []
    for row, column in card.cells("paper"):
        known = {key: card.paper(key, row, column) for key in card.numbers}
        made = {key: it[0] + (it[1] or 0.0) * rng.permutation(SEEDS) for key, it in known.items() if it is not None}
        lines += [
            Line("paper", row, column, k, {}, {key: float(v[k]) / card.numbers[key].factor for key, v in made.items()},
                 0.0, {})
            for k in range(len(SEEDS))
        ]  # fmt: skip
    return Table(tuple(lines), *card.places("paper"))


@pytest.mark.parametrize("name", PRINTED)
def test_the_papers_own_numbers_pass_its_claims(name):
    """A claim may speak of what the paper does not print, as a curve: then it is not judged."""
    card, rng = find.card(name), np.random.default_rng(0)
    tables = [as_printed(card, rng) for _ in range(ORDERS)]
    told = {claim.name: {verdict_of(claim, table) for table in tables} for claim in card.claims}
    against = [claim for claim, verdicts in told.items() if verdicts == {REFUTED} and "its own" in claim]
    assert all(told[claim] in ({HELD}, {OPEN}) for claim in told if claim not in against), told
    assert len(against) == CONTRADICTED.get(name, 0) and {HELD} in told.values()
