"""FedALS's Figure 1 has the paper's distances of finished cells, which hold the distances of a parameter."""

from __future__ import annotations

import pytest

from apiece.papers.fedals.figure1 import CARD
from apiece.reproduce.standing import HELD, REFUTED, verdict_of
from apiece.reproduce.table import Line, Table

HEAD, STEM = 64 * 10 + 10, {"CIFAR-10": 16 * 3 * 9 + 2 * 16, "MNIST": 16 * 9 + 2 * 16}  # weights, biases, BatchNorm


def line(column: str, layers: list[float]) -> Line:
    """A cell with one measured round, and what the card derives of it."""
    settings = CARD.settings("cpu", "FedAvg", column)
    first, second = sum(layers[:10]) / 10, sum(layers[10:]) / 10
    values = {"distances": [[5], *([value] for value in layers)], "early": first, "late": second}
    made = Line("cpu", "FedAvg", column, 0, settings, values, 0.0, {})
    return made._replace(values=values | {name: make(made) for name, make in CARD.derived.items()})


@pytest.mark.parametrize("column", CARD.columns)
def test_a_layers_distance_is_a_parameters_times_its_size(column):
    of = line(column, [1.0] * 20).values["whole_distances"]
    assert of[0] == [5] and (of[1], of[-1]) == ([STEM[column]], [HEAD])
    assert sum(size for (size,) in of[1:]) == 292_954 - (STEM["CIFAR-10"] - STEM[column])


def test_each_claim_has_its_own_distance():
    """Of a parameter it falls from layer to layer, up to the last; the layers grow faster than that."""
    falling = [2.0**-layer for layer in range(10)] + [2.0**-10] * 9
    lines = tuple(line(column, [*falling, 100.0]) for column in CARD.columns)
    table = Table(lines, ("FedAvg",), tuple(CARD.columns))
    assert table.mean(("FedAvg", "MNIST"), "late_but_last") == pytest.approx(2.0**-10)
    assert [verdict_of(claim, table) for claim in CARD.claims] == [HELD, REFUTED, HELD, REFUTED]
    lines = tuple(line(column, [1.0] * 20) for column in CARD.columns)
    table = Table(lines, ("FedAvg",), tuple(CARD.columns))
    assert [verdict_of(claim, table) for claim in CARD.claims] == [HELD, HELD, REFUTED, REFUTED]
