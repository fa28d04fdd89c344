"""What the claims of FedALS's and FedInit's cards ask: each holds of the paper's numbers, and not of some others."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from apiece.reproduce import find
from apiece.reproduce.card import Card
from apiece.reproduce.standing import HELD, OPEN, REFUTED, verdict_of
from apiece.reproduce.table import Line, Table

OTHERWISE = [  # (card, claim, other numbers than the paper's, of which the claim does not hold)
    ("fedals-table1", "FedALS within 2 points of FedAvg on iid data", {("FedALS", "SVHN, iid"): 50.0}),
    ("fedals-table1", "FedALS above FedAvg on non-iid", {("FedALS", "MNIST, non-iid"): 79.0}),
    ("fedals-table1", "SCAFFOLD above FedAvg on some", {("SCAFFOLD", "SVHN, non-iid"): 99.0}),
    ("fedals-table1", "SCAFFOLD above FedAvg on some",
     {("SCAFFOLD", "SVHN, non-iid"): 70.0, ("SCAFFOLD", "MNIST, non-iid"): 79.0}),
    ("fedals-table2", "alpha = 10, and 5", {("alpha = 5", "SVHN"): 70.0}),
    ("fedals-table2", "that, and no larger", {("alpha = 50", "SVHN"): 82.0}),
    ("fedals-table2", "that, and no larger", {("alpha = 10", "CIFAR-10"): 40.0}),
    ("fedals-table3", "L = 16 has the highest", {("L = 20", "CIFAR-100"): 47.83}),
    ("fedals-table3", "the best and the worst L", {(f"L = {n}", "SVHN"): 70.0 for n in (12, 8, 4, 1)}),
    ("fedinit-table4", "VGG-11, 10 %-100, Dir-0.6", {("VGG-11: FedSAM", "10 %-100, Dir-0.6"): 88.5}),
    ("fedinit-table4", "by 2 points or more", {("ResNet-18-GN: FedAvg", "10 %-100, Dir-0.1"): 74.0}),
    ("fedinit-table4", "FedInit loses less", {("ResNet-18-GN: FedInit", "5 %-200, Dir-0.1"): 74.0}),
    ("fedinit-table5", "FedInit loses less", {("ResNet-18-GN: SCAFFOLD", "5 %-200, Dir-0.1"): 44.0}),
]  # fmt: skip


def own(card: Card, changed: Mapping[tuple[str, str], float] = MappingProxyType({})) -> Table:
    """The paper's means, as a table with one seed, so that differences count as they are. `changed`: other numbers."""
    scale = "paper" if "paper" in card.scales else "cpu"
    lines = []
    for row, column in card.cells(scale):
        means = {name: card.paper(name, row, column) for name in card.numbers}
        values = {name: mean[0] / card.numbers[name].factor for name, mean in means.items() if mean is not None}
        values |= {"accuracy": changed[row, column] / 100} if (row, column) in changed else {}
        lines.append(Line(scale, row, column, 0, {}, values, 0.0, {}))
    return Table(tuple(lines), *card.places(scale))


@pytest.mark.parametrize(("name", "begins", "changed"), OTHERWISE)
def test_a_claim_does_not_hold_of_other_numbers(name, begins, changed):
    card = find.card(name)
    (claim,) = (claim for claim in card.claims if claim.name.startswith(begins))
    assert verdict_of(claim, own(card)) != REFUTED and verdict_of(claim, own(card, changed)) == REFUTED


@pytest.mark.parametrize(
    ("rounds", "verdict"),
    [((20, 22), HELD), ((20, None), HELD), ((22, 20), REFUTED), ((None, 30), REFUTED)],
)
def test_a_target_that_was_not_reached_is_later_than_any(rounds, verdict):
    """FedInit's rounds and those of all other methods to the higher target, in FedInit's Table 8."""
    card, ((column, _),) = find.card("fedinit-table8"), find.card("fedinit-table8").columns.items()
    values = [{"last": 0.3} | ({} if one is None else {"rounds_high": float(one)}) for one in rounds]
    lines = [Line("cpu", row, column, 0, {}, values[row != "FedInit"], 0.0, {}) for row in card.rows]
    (claim,) = (claim for claim in card.claims if "fewest" in claim.name)
    assert verdict_of(claim, Table(tuple(lines), *card.places("cpu"))) == verdict
    assert verdict_of(claim, Table(tuple(lines[:2]), *card.places("cpu"))) == OPEN
