"""Everything that a panel shows lies inside of it, however long its numbers and names are."""

from __future__ import annotations

import numpy as np
import pytest

from apiece.report.drawing import dots, fit, line, panel, scales, series, style
from apiece.report.records import Curve, Spread

LONG = ["a name of more than twenty-six letters", "scaffold + relaxed_init(beta=0.1)"]


def outside(figure) -> float:
    """By how many inches text or lines reach beyond the figure."""
    drawn = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    return max(-drawn.x0, -drawn.y0, drawn.x1 - width, drawn.y1 - height)


@pytest.mark.parametrize(
    ("values", "log"),
    [
        ((12.0, 88.9), False),
        ((-1234.5, 0.0001), False),
        ((3e-9, 4e-9), False),
        ((-5e-12, 2e15), False),
        ((1e-9, 1e12), True),
        ((0.2, 0.9), True),
    ],
)
@pytest.mark.parametrize(("unit", "last"), [("", 3), ("", 1_000_000), ("B", 9e15)])
def test_a_curve(values: tuple[float, ...], log: bool, unit: str, last: float) -> None:
    with style():
        figure, axes = panel()
        curve = Curve(np.array([0.1 * last, last]), np.array(values), np.zeros(2))
        line(axes, curve, series(["one"])[0], log)
        axes.set(xlabel="round", ylabel="squared distance")
        scales(axes, [curve], log, unit)
        fit(axes)
        assert outside(figure) <= 0.02


@pytest.mark.parametrize("names", [["a"], LONG, ["ab"] * 30])
def test_rows_with_names(names: list[str]) -> None:
    with style():
        figure = dots([Spread(97.5, 1.0, 3)] * len(names), series(names), False, lambda value: f"{value.mean:.1f}")
        figure.axes[0].set(xlabel="accuracy (%)")
        fit(figure.axes[0])
        assert outside(figure) <= 0.02
        assert figure.axes[0].get_position().width > 0.25
