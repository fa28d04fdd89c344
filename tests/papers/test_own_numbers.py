"""A claim of a paper holds of the paper's own numbers, or its card says that it does not."""

from __future__ import annotations

import pytest

from apiece.reproduce import find
from apiece.reproduce.card import Card
from apiece.reproduce.standing import REFUTED, verdict_of
from apiece.reproduce.table import Line, Table

CONTRADICTED = {  # sentences that their own tables contradict
    "fedinit-table6": {"no method loses"},  # FedDyn 82.43 and 81.91
    "fedinit-table7": {"FedSAM is the slowest (in its own table SCAFFOLD is, where 5 % take part)"},
}


def own(card: Card) -> Table:
    """The paper's means, as a table with one seed: then each difference counts as it is."""
    scale = "paper" if "paper" in card.scales else "cpu"
    lines = []
    for row, column in card.cells(scale):
        means = {name: card.paper(name, row, column) for name in card.numbers}
        values = {name: mean[0] / card.numbers[name].factor for name, mean in means.items() if mean is not None}
        lines.append(Line(scale, row, column, 0, {}, values, 0.0, {}))
    return Table(tuple(lines), *card.places(scale))


@pytest.mark.parametrize("name", [name for name in find.names() if find.card(name).published])
def test_claims_hold_of_the_papers_own_numbers(name):
    card = find.card(name)
    verdicts = {claim.name: verdict_of(claim, own(card)) for claim in card.claims}
    assert len(verdicts) == len(card.claims)
    assert {claim for claim, verdict in verdicts.items() if verdict == REFUTED} == CONTRADICTED.get(name, set())
