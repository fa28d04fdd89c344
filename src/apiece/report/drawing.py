"""How figures are drawn: the palette, the style, lines with bands, and axes with readable numbers.

Colors are names in the page's palette, so that the page can change them for a dark background.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from apiece.report.records import Curve, Spread
from apiece.report.text import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, LINE = "#24292f", "#66707b", "#d9dee4"
# Okabe and Ito's color-blind-safe colors, darkened where a white page needs it; the yellow is left out
COLORS = ("#0072b2", "#d55e00", "#009e73", "#c2609b", "#b8860b", "#3fa7dd", "#882255", "#6b7280")
VARIABLES = {INK: "var(--ink)", MUTED: "var(--muted)", LINE: "var(--line)"} | {
    color: f"var(--c{i})" for i, color in enumerate(COLORS)
}
CHARACTER = 0.095  # inches that a character takes, about
DRAWN = 9_000  # points of all lines of a page's figures together: about 400 kB
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text, in the page's own typeface
    "svg.hashsalt": "apiece",  # one figure is one file
    "text.parse_math": False,  # a name may contain dollar signs
    "font.size": 10.5,
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), MUTED),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor"), "none"),
    "savefig.facecolor": "auto",  # the figure's: a picture that stands alone is white, on a dark page as well
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width", "grid.linewidth"), 0.7),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 3),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    "grid.color": LINE,
    "lines.linewidth": 1.5,
    "lines.markersize": 3.5,
    "lines.solid_capstyle": "round",
}


class Series(NamedTuple):
    """How a legend shows a line: label, color, and the dash pattern as SVG writes it."""

    label: str
    color: str
    dashes: str


def variable(color: str) -> str:
    """A color as the page names it; a color that the page does not have stays."""
    return VARIABLES.get(color, color)


def series(labels: Iterable[str]) -> list[Series]:
    """One color per label; from the ninth label on, the colors repeat with dashes."""
    dashes = ("", "5 2", "1.5 1.5", "6 2 1.5 2")
    n = len(COLORS)
    return [Series(label, COLORS[i % n], dashes[i // n % len(dashes)]) for i, label in enumerate(labels)]


def gradient(layers: list[str]) -> list[Series]:
    """One color per layer, by depth, for layers that are too many to tell apart one by one."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    colors = LinearSegmentedColormap.from_list("depth", [COLORS[0], COLORS[2], COLORS[4], COLORS[1]])
    return [Series(layer, to_hex(colors(i / (len(layers) - 1))), "") for i, layer in enumerate(layers)]


@contextmanager
def style() -> Iterator[None]:
    """Matplotlib's settings for the page: text stays text, nothing is filled, few lines."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def line(axes: Axes, curve: Curve, look: Series, log: bool = False) -> None:
    """One curve and its band, on a log axis or not."""
    dashes: Any = (0, tuple(map(float, look.dashes.split()))) if look.dashes else "-"
    marker = "o" if np.isfinite(curve.mean).sum() <= 12 else ""
    axes.plot(curve.x, curve.mean, color=look.color, linestyle=dashes, marker=marker)
    band(axes, curve, look.color, log)


def band(axes: Axes, curve: Curve, color: str, log: bool) -> None:
    """If there are several seeds, the band of one standard deviation. On a log axis it goes down as far as it goes up,
    since mean - sd may be no positive number; `drawing.js` of the report has the same rule.
    """
    if curve.sd.any():
        high = curve.mean + curve.sd
        low = np.divide(curve.mean**2, high, out=0 * high, where=high > 0) if log else curve.mean - curve.sd
        axes.fill_between(curve.x, low, high, color=color, alpha=0.16, linewidth=0)


def thinned(curve: Curve | None, lines: int) -> Curve | None:
    """The curve with as many points as a page of so many lines has room for: evenly, with the first and the last."""
    most = max(13, DRAWN // max(1, lines))
    if curve is None or len(curve.x) <= most:
        return curve
    places = np.linspace(0, len(curve.x) - 1, most).round().astype(int)
    return Curve(*(part[places] for part in curve))


def dots(values: list[Spread | None], looks: list[Series], log: bool, write: Callable[[Spread], str]) -> Figure:
    """One line for each row with its value: what was measured once has no curve."""
    known = [(value, look) for value, look in zip(values, looks, strict=True) if value]
    figure, axes = panel(0.55 + 0.27 * len(known))
    for place, (value, look) in enumerate(known):
        axes.errorbar(value.mean, place, xerr=value.sd or None, fmt="o", color=look.color, markersize=5)
        axes.annotate(
            write(value), (value.mean, place), (0, 4), textcoords="offset points", ha="center", fontsize=9, va="bottom"
        )
    axes.set_ylim(len(known) - 0.5, -0.85)
    named_rows(axes, [look.label for _, look in known])
    if log and all(value.mean > 0 for value, _ in known):
        axes.set_xscale("log")
    axes.margins(x=0.12)
    return figure


def named_rows(axes: Axes, names: list[str]) -> None:
    """The names of rows from top to bottom on the y axis; long ones are cut."""
    axes.set_yticks(range(len(names)), [name if len(name) <= 26 else f"{name[:25]}…" for name in names])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def blank(width: float, height: float, layout: Literal["constrained"] | None = "constrained") -> tuple[Figure, Axes]:
    """An empty figure, sized in inches; its text is measured for its margins, unless it has no layout."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout=layout)
    return figure, figure.add_subplot()


def panel(height: float = 2.7) -> tuple[Figure, Axes]:
    """An empty panel of the page, as wide as all its panels; `fit` gives it margins when it is full."""
    return blank(4.2, height, layout=None)


def fit(axes: Axes) -> None:
    """Margins with room for the ticks and the names of both axes, by their numbers of characters. The page shows text
    in its own typeface, so that measuring it in another one takes half of the drawing's time and is no closer.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    width, height = figure.get_size_inches()
    across, up = (
        CHARACTER * max(map(len, axis.get_major_formatter().format_ticks(axis.get_majorticklocs().tolist())), default=0)
        for axis in (axes.xaxis, axes.yaxis)
    )
    figure.subplots_adjust(
        left=(0.14 + up + 0.2 * bool(axes.get_ylabel())) / width,
        right=1 - (0.06 + across / 2) / width,
        bottom=(0.3 + 0.2 * bool(axes.get_xlabel())) / height,
        top=1 - 0.1 / height,
    )


def scales(axes: Axes, curves: Iterable[Curve | None], log: bool, unit: str = "") -> None:
    """Round numbers on both axes; on a log axis 1, 2, 5 or decades, whichever are fewer."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    known = [curve for curve in curves if curve is not None]
    low, high = positive_range(known)
    powers = False
    if log and high > 0:
        ticks = _log_ticks(low, high)
        step = 1 + (len(ticks) - 1) // 7
        powers = ticks[0] < 1e-3 or ticks[-1] >= 1e4
        axes.set_yscale("log")
        axes.set_ylim(ticks[0] / 1.05, ticks[-1] * 1.05)
        axes.yaxis.set_major_locator(FixedLocator(ticks[::step]))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value, powers)))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=not unit, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value, unit) if value else "0"))
    if len(places := np.unique(np.concatenate([curve.x for curve in known]))) == 1:
        axes.set_xlim(0, 2 * places[0] or 1)


def positive_range(curves: Iterable[Curve | None]) -> tuple[float, float]:
    """The smallest and the largest positive finite value; zeros if there is none."""
    values = np.concatenate([np.empty(0), *(curve.mean for curve in curves if curve is not None)])
    positive = values[np.isfinite(values) & (values > 0)]
    return (float(positive.min()), float(positive.max())) if len(positive) else (0.0, 0.0)


def _log_ticks(low: float, high: float) -> list[float]:
    """From the last round number below to the first above: 1, 2, 5 times powers of ten, or powers alone."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    for steps in ((1, 2, 5), (1,)):
        every = [step * 10.0**power for power in powers for step in steps]
        first = max(tick for tick in every if tick <= low * 1.0001)
        last = min(tick for tick in every if tick >= high * 0.9999 and tick > first)
        ticks = [tick for tick in every if first <= tick <= last]
        if len(ticks) <= 7:
            break
    return ticks


def _tick(value: float, powers: bool) -> str:
    if not value or not (powers or abs(value) >= 1e4 or abs(value) < 1e-3):
        return f"{value:.6g}".replace("-", "−")
    exponent = math.floor(math.log10(abs(value)) + 1e-9)
    digits = f"{value / 10.0**exponent:.3g}".replace("-", "−")
    power = "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return power if digits == "1" else f"{digits}·{power}"


def whole_numbers(axes: Axes) -> None:
    """Ticks at whole numbers, for axes that count."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(14, integer=True, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(12, integer=True, steps=[1, 2, 5, 10]))
