"""A figure for a paper: one number of runs against rounds, bytes or seconds, as a file or as matplotlib axes."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from apiece.errors import UserError, nearest
from apiece.report.drawing import COLORS, band, blank, positive_range, scales
from apiece.report.drawing import style as page_style
from apiece.report.metrics import Number, by_key, choices, others
from apiece.report.notes import unfinished
from apiece.report.records import Curve, Run, Runs, measured
from apiece.report.results import begun, read_runs, unlike
from apiece.report.text import PREFIXES
from apiece.system import files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = (".pdf", ".svg", ".png")
Across = Literal["rounds", "bytes", "seconds"]
Look = Literal["screen", "print"]
ACROSS = {"rounds": ("round", "round", ""), "bytes": ("bytes", "bytes sent, up and down", "B"),
          "seconds": ("elapsed", "seconds of training", "s")}  # fmt: skip
MANY = 4  # lines whose names always stand above the axes
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")  # with the dashes, they tell lines apart in gray
WHITE = dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "white")
LOOKS: dict[Look, dict[Any, Any]] = {
    "screen": {"figure.figsize": (6.4, 4.0), "savefig.dpi": 160, **WHITE},
    "print": {"figure.figsize": (3.35, 2.5), "font.size": 8, **WHITE, "lines.linewidth": 1.1, "savefig.dpi": 600,
              "lines.markersize": 3.5, "text.color": "black", "axes.labelcolor": "black", "axes.edgecolor": "black",
              "pdf.fonttype": 42, "ps.fonttype": 42,  # TrueType, as publishers ask
              **dict.fromkeys(("xtick.color", "ytick.color", "xtick.labelcolor", "ytick.labelcolor"), "black")},
}  # fmt: skip


class Drawn(NamedTuple):
    """What is drawn: the number, a curve for each row that has it, and the row's place among all, which decides its
    color as in the report.
    """

    number: Number
    curves: dict[str, Curve]
    places: dict[str, int]


def figure(
    folders: str | Path | Iterable[str | Path],
    x: Across = "rounds",
    y: str = "global",
    style: Look = "screen",
    out: str | Path | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Draw one number of run folders: a line for each algorithm, the mean over seeds, with a band of one sample
    standard deviation. Seeds are combined at the rounds that all of them measured.

    Args:
        folders: One run folder or several, or folders that hold runs, as for `apiece compare`.
        x: `rounds`; `bytes`, sent up and down until then; or `seconds` of training until then.
        y: What is drawn: a name that `apiece grid --metric` takes (`global`, `personal`, `worst`, `unseen`,
            `global_f1`, ...), or a key of metrics.jsonl (`train_loss`, `consensus/head`, `FedExP.step_size`).
        style: `screen`, or `print`: as wide as a column (3.35 inches), with lines that differ by dashes and markers.
        out: A file to write as well, .pdf, .svg or .png.
        axes: Matplotlib axes of your own to draw into, where the legend is inside; without them, a new figure of
            pyplot, with the legend above.

    Returns:
        The matplotlib axes, to be changed further; `axes.figure` is the figure.

    Raises:
        UserError: Where no run is found, none has that number, or the file's ending is another.

    >>> from tempfile import TemporaryDirectory
    >>> from apiece import federate
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("fedavg", "scaffold"):
    ...         run = federate(algorithm=name, clients=5, rounds=3, steps=5, out=f"{folder}/{name}")
    ...     axes = figure(folder, x="bytes", y="global")
    >>> axes.get_ylabel(), axes.get_xlabel(), len(axes.get_lines())
    ('Global accuracy (%)', 'bytes sent, up and down (MB)', 2)
    """
    path = None if out is None else _refused(Path(out))
    if x not in ACROSS or style not in LOOKS:
        what, value, allowed = ("x", x, ACROSS) if x not in ACROSS else ("style", style, LOOKS)
        raise UserError(f"{what}={value!r} is unknown; {nearest(str(value), allowed)}")
    found = drawn(folders, x, y)
    with looking(style):
        own = axes is None
        if own:
            from matplotlib import pyplot

            axes = pyplot.figure(layout="constrained").add_subplot()
        draw(axes, found, x, style)
        _legend(axes, own)
        if path is not None:
            save(_figure(axes), path)
    return axes


def write_figure(folders: Iterable[str | Path], x: Across, y: str, style: Look, out: Path) -> Path:
    """The same as a file alone, without pyplot; returns its path."""
    path = _refused(out)
    found = drawn(folders, x, y)
    with looking(style):
        made, axes = blank(*LOOKS[style]["figure.figsize"])
        draw(axes, found, x, style)
        _legend(axes, own=True)
        save(made, path)
    return path


def drawn(folders: str | Path | Iterable[str | Path], x: Across, y: str) -> Drawn:
    """The curves; on stderr, names the runs that do not have the number, and says if runs had other data."""
    rows = read_runs(begun([folders] if isinstance(folders, str | Path) else folders))
    number, against = _number(rows, y), ACROSS[x][0]
    if warning := unlike(rows):
        print(f"apiece: {warning}", file=sys.stderr)
    for line in [line for row in rows for run in row.runs for line in unfinished(str(run.path), run)]:
        print(f"apiece: {line}", file=sys.stderr)
    timed = [replace(row, runs=tuple(map(_timed, row.runs))) for row in rows]
    curves = {row.name: row.curve(number.key, against) for row in timed}
    known = {name: curve for name, curve in curves.items() if curve is not None and np.isfinite(curve.mean).any()}
    if not known:
        raise UserError(f"no run has {y!r} and {x} in rounds that all its seeds measured: take another x or y.")
    for name in curves.keys() - known.keys():
        print(f"apiece: {name} has no {y!r} ({number.key}), and is left out.", file=sys.stderr)
    scaled = {n: Curve(c.x, c.mean * number.scale, c.sd * number.scale) for n, c in known.items()}
    return Drawn(number, scaled, {name: place for place, name in enumerate(curves)})


@contextmanager
def looking(look: Look) -> Iterator[None]:
    """Matplotlib's settings for one of the styles."""
    import matplotlib

    with page_style():
        matplotlib.rcParams.update(LOOKS[look])
        yield


def draw(axes: Axes, found: Drawn, x: Across, look: Look) -> None:
    """Draw the curves, and the names of both axes with their units."""
    number, (_, across, unit) = found.number, ACROSS[x]
    factor, prefix = _prefix(max(float(curve.x.max()) for curve in found.curves.values()) if unit == "B" else 0.0)
    curves = [curve._replace(x=curve.x / factor) for curve in found.curves.values()]
    log = number.logarithmic(*positive_range(curves))
    for name, curve in zip(found.curves, curves, strict=True):
        _line(axes, curve, name, found.places[name], look, log)
    scales(axes, curves, log, "" if x == "rounds" else " ")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel(f"{across} ({prefix}{unit})" if unit else across)
    axes.set_ylabel(f"{number.heading} ({number.unit})" if number.unit else number.heading)


def _legend(axes: Axes, own: bool) -> None:
    """Name the lines: inside of axes that a program gave. In a figure of ours, in columns above the axes, for which the
    figure grows; more than four names stand beside the axes where they take less room there.
    """
    figure, lines = _figure(axes), axes.get_lines()
    if len(lines) < 2:
        return
    if not own:
        axes.legend(frameon=False)
        return
    em = float(axes.xaxis.label.get_fontsize()) / 72  # in inches
    width, height = figure.get_size_inches() / em
    name = 0.6 * max(len(str(line.get_label())) for line in lines) + 3.8  # with the line before it
    fit = max(1, int((0.85 * width + 1) / (name + 1)))
    rows = -(-len(lines) // fit)
    look: dict[str, Any] = {"frameon": False, "handlelength": 3}
    if len(lines) > MANY and name < min(0.45 * width, 1.6 * rows * width / height):
        figure.legend(loc="outside right upper", **look)
        return
    figure.set_figheight(figure.get_figheight() + 1.6 * em * (rows - 1))
    figure.legend(loc="outside upper left", ncols=fit, columnspacing=1, **look)


def _figure(axes: Axes) -> Figure:
    made = axes.get_figure(root=True)
    assert made is not None
    return made


def save(made: Figure, path: Path) -> None:
    """Write the figure within `looking`; the same runs give the same bytes."""
    undated: Any = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(path.suffix.lower(), {})
    buffer = io.BytesIO()
    made.savefig(buffer, format=path.suffix[1:].lower(), metadata=undated)
    files.make(path.parent)
    files.atomic_write(path, buffer.getvalue())


def _line(axes: Axes, curve: Curve, name: str, place: int, look: Look, log: bool) -> None:
    color, points = COLORS[place % len(COLORS)], len(curve.x)
    apart = place if look == "print" else place // len(COLORS)  # on a screen, colors repeat with other dashes
    every = -(-points // 8)
    marker = MARKERS[apart % len(MARKERS)] if look == "print" or points <= 12 else ""
    dashes: Any = DASHES[(apart + apart // len(MARKERS)) % len(DASHES)]
    axes.plot(
        curve.x, curve.mean, color=color, linestyle=dashes, label=name, marker=marker, markevery=(place % every, every)
    )
    band(axes, curve, color, log)


def _number(rows: list[Runs], y: str) -> Number:
    """The number of that name or key; UserError for a name that is none."""
    known = _known(rows)
    if y in known:
        return known[y]
    if parts := [key for key in known if key.startswith(f"{y}/")]:
        raise UserError(f"{y!r} is measured of each layer by itself: take one of {', '.join(parts)}.")
    if y == "round":
        raise UserError("'round' is what --x rounds draws other numbers against: take another --y.")
    every = choices(measured(rows)) | by_key(measured(rows))
    if y in every:
        named = [name for name in choices(measured(rows)) if name in known]
        raise UserError(f"no run has measured {y!r}; there are {', '.join(named)} and the keys of metrics.jsonl.")
    raise UserError(f"there is no metric {y!r}; {nearest(y, known, 'They are the keys of metrics.jsonl.')}")


def _known(rows: list[Runs]) -> dict[str, Number]:
    """What at least one run measured, by the names that `y` may have."""
    keys = dict.fromkeys(key for row in rows for run in row.runs for line in run.metrics for key in _keys(line))
    usual = by_key(measured(rows))
    found = {key: usual[key] for key in keys if key in usual}
    found |= {key: _of_layer(usual["consensus"], key) for key in keys if key.startswith("consensus/")}
    found |= {number.key: number for number in others((k for k in keys if k not in found), measured(rows))}
    found |= {"bytes": usual["bytes"]} if "bytes_up" in keys else {}
    named = {choice: number for choice, number in choices(measured(rows)).items() if number.key in keys}
    return named | {key: number for key, number in found.items() if key != "round"}


def _of_layer(number: Number, key: str) -> Number:
    return number._replace(key=key, heading=f"{number.heading} of {key.partition('/')[2]}")


def _keys(line: dict[str, Any]) -> Iterator[str]:
    for key, value in line.items():
        if isinstance(value, dict):
            yield from (f"{key}/{part}" for part in value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield key


def _timed(run: Run) -> Run:
    """The run with the seconds of training until each round."""
    spent = accumulate(line.get("seconds") or 0.0 for line in run.metrics)
    has = any("seconds" in line for line in run.metrics)
    return replace(run, metrics=[line | {"elapsed": s} for line, s in zip(run.metrics, spent)]) if has else run


def _prefix(most: float) -> tuple[float, str]:
    return next(((factor, prefix) for factor, prefix in PREFIXES if most >= factor), (1.0, ""))


def _refused(path: Path) -> Path:
    if path.suffix.lower() not in ENDINGS:
        raise UserError(f"{path} has no known ending: name a file that ends with .pdf, .svg or .png.")
    return path
