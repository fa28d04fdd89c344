"""What the longer claims of FedCOG's and PeFLL's cards ask: each holds of numbers such as the paper's alone."""

from __future__ import annotations

import pytest

from apiece.reproduce import find
from apiece.reproduce.standing import HELD, OPEN, REFUTED, verdict_of
from apiece.reproduce.table import Line, Table

FIGURE2 = ("FedCOG", "FedAvg", "FedProx")
CIFAR = "CIFAR-10 NIID-1"


def judged(card, name, cells, seeds=3):
    """The verdict on the claim whose name has this in it, of {(row, column): {number: its value in each seed}}."""
    (claim,) = [claim for claim in find.card(card).claims if name in claim.name]
    lines = [
        Line("paper", row, column, k, {}, {key: values[k] for key, values in numbers.items()}, 0.0, {})
        for (row, column), numbers in cells.items() for k in range(seeds)
    ]  # fmt: skip
    return verdict_of(claim, Table(tuple(lines), *find.card(card).places("paper")).whole(range(seeds)))


@pytest.mark.parametrize(("best", "verdict"), [(6, HELD), (5, REFUTED), (0, REFUTED), (10, HELD)])
def test_most_clients_are_more_than_half_of_them_in_every_seed(best, verdict):
    def of(row, won):
        values = [(0.9 if k < won else 0.7) if row == "FedCOG" else 0.8 for k in range(10)]
        return [list(range(1, 11)), values]

    cells = {(row, CIFAR): {"personal by client": [of(row, 8), of(row, best), of(row, 8)]} for row in FIGURE2}
    assert judged("fedcog-figure2", "most of the clients", cells) == verdict


def test_in_every_seed_is_not_beyond_chance():
    """Three seeds that all say the same may differ too much from each other to be told from chance."""
    gains = {"FedAvg": (0.0, 0.0, 0.0), "FedProx": (0.0, 0.0, 0.0), "FedCOG": (0.001, 0.009, 0.001)}
    cells = {(row, CIFAR): {"general": [0.5 + x for x in values]} for row, values in gains.items()}
    assert judged("fedcog-figure2", "generalize best in the mean, in every seed", cells) == HELD
    assert judged("fedcog-figure2", "generalize best in the mean, beyond chance", cells) == REFUTED
    cells[("FedCOG", CIFAR)]["general"] = [0.509, 0.509, 0.508]
    assert judged("fedcog-figure2", "generalize best in the mean, beyond chance", cells) == HELD


@pytest.mark.parametrize(("end", "verdict"), [(0.609, HELD), (0.611, REFUTED)])
def test_a_curve_that_still_rises_by_a_point_is_not_saturated(end, verdict):
    card = find.card("fedcog-table1")
    curve = [list(range(1, 71)), [0.1] * 50 + [0.6] * 10 + [end] * 10]
    cells = {cell: {"curve": [curve] * 3} for cell in card.cells("paper")}
    assert judged("fedcog-table1", "last ten rounds", cells) == verdict


def of_table1(means=()):
    """FedAvg has 0.5 and FedCOG 0.6 under NIID-2, 0.55 under NIID-1, and all others as FedAvg, but for changes."""
    card = find.card("fedcog-table1")
    usual = lambda row, column: 0.5 if row != "FedCOG" else 0.6 if column.endswith("2") else 0.55
    means = {cell: usual(*cell) for cell in card.cells("paper")} | dict(means)
    return {cell: {"accuracy": [mean, mean + 0.01, mean + 0.02]} for cell, mean in means.items()}


def test_the_gain_has_to_be_one_and_larger_where_it_is_harder():
    hard, easy = (("FedCOG", f"{data} NIID-{k}") for data, k in (("CIFAR-10", 2), ("CIFAR-10", 1)))
    gain = "and by more than under NIID-1"
    assert judged("fedcog-table1", gain, of_table1()) == HELD
    assert judged("fedcog-table1", gain, of_table1(means={hard: 0.49})) == REFUTED
    assert judged("fedcog-table1", gain, of_table1(means={easy: 0.9})) == REFUTED
    both = {cell: 0.4 - 0.1 * cell[1].endswith("1") for cell in of_table1() if cell[0] == "FedCOG"}
    assert judged("fedcog-table1", gain, of_table1(means=both)) == REFUTED, "a smaller loss is no gain"


def test_some_method_is_a_baseline_and_one_cell_is_enough():
    some = "some method below FedAvg in some column of NIID-2"
    assert judged("fedcog-table1", some, of_table1()) == REFUTED
    ours = {("FedCOG by counts", "CIFAR-10 NIID-2"): 0.1, ("MOON", "CIFAR-10 NIID-1"): 0.1}
    assert judged("fedcog-table1", some, of_table1(means=ours)) == REFUTED
    cells = of_table1(means={("MOON", "CIFAR-10 NIID-2"): 0.49})
    assert judged("fedcog-table1", some, cells) == HELD
    alone = {cell: numbers for cell, numbers in cells.items() if cell[0] in ("FedAvg", "MOON")}
    assert judged("fedcog-table1", some, alone) == HELD, "rows that are not there change nothing"
    assert judged("fedcog-table1", some, {cell: n for cell, n in cells.items() if cell[0] == "FedAvg"}) == OPEN


def test_the_smallest_hypernetwork_has_to_be_lowest():
    """All three within two points of each other are not enough."""
    sizes = lambda s, m, large: {
        (size, column): {"seen": [value] * 3}
        for size, value in zip("SML", (s, m, large), strict=True) for column in find.card("pefll-table5").columns
    }  # fmt: skip
    told = lambda *means: [judged("pefll-table5", name, sizes(*means)) for name in ("less than 2 points", "S lowest")]
    assert told(0.84, 0.85, 0.85) == [HELD, HELD]
    assert told(0.86, 0.85, 0.85) == [HELD, REFUTED] and told(0.85, 0.84, 0.859) == [HELD, REFUTED]
    assert told(0.82, 0.85, 0.85) == [REFUTED, HELD]


def test_new_clients_are_not_held_against_training_alone():
    """Table 1 (b) has no row of it."""
    card = find.card("pefll-table1")
    seen = {"Local": 0.6, "PeFLL": 0.7}
    cells = {
        (row, c): {"seen": [seen.get(row, 0.5)] * 3, "unseen": [0.9 if row == "Local" else seen.get(row, 0.5)] * 3}
        for row, c in card.cells("paper")
    }  # fmt: skip
    for name in ("highest on seen", "highest on unseen", "lead over", "in most columns"):
        assert judged("pefll-table1", name, cells) == HELD
    for cell in cells:
        cells[cell]["unseen"] = [0.66 if cell[0] == "FedRep" else 0.5 + 0.2 * (cell[0] == "PeFLL")] * 3
    assert judged("pefll-table1", "lead over", cells) == REFUTED
