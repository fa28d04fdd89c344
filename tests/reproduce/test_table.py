"""What claims ask of a table: a cell that fails them refutes them, also where others are not there yet."""

from __future__ import annotations

import pytest

from apiece.reproduce.table import Line, OutOfReach, Table, every

ROWS, COLUMNS = ("ours", "other", "third"), ("a", "b")


def table(**cells):
    """Two seeds of each cell, the second a little higher."""
    lines = []
    for name, mean in cells.items():
        row, column = name.split("_")
        lines += [Line("cpu", row, column, k, {}, {"accuracy": mean + 0.02 * k}, 0.0, {}) for k in range(2)]
    return Table(tuple(lines), ROWS, COLUMNS)


def test_the_highest_row_may_be_equal_to_another():
    whole = dict(ours_a=0.5, ours_b=0.5, other_a=0.5, other_b=0.4, third_a=0.1, third_b=0.2)
    assert table(**whole).highest("ours") and not table(**whole).highest("other")
    assert table(**whole).highest("other", columns=("a",)) and table(**whole).highest("other", rows=("third",))


@pytest.mark.parametrize("missing", ["other_a", "other_b", "third_a"])
def test_a_cell_that_is_not_there_hides_no_other_that_refutes(missing):
    """Whatever the order of rows and columns."""
    cells = dict(ours_a=0.5, ours_b=0.5, other_a=0.6, other_b=0.6, third_a=0.1, third_b=0.2)
    assert not table(**{name: mean for name, mean in cells.items() if name != missing}).highest("ours")
    lower = {name: min(mean, 0.5) for name, mean in cells.items() if name != missing}
    with pytest.raises(OutOfReach):
        table(**lower).highest("ours")


def test_every_of_nothing_holds_and_one_that_fails_decides():
    def holds(one):
        if one is None:
            raise OutOfReach("not run")
        return one

    assert every(holds, ()) and every(holds, (True, True)) and not every(holds, (None, False, True))
    with pytest.raises(OutOfReach):
        every(holds, (True, None))
