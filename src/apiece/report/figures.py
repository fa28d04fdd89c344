"""The figures of a report: curves over rounds, drift by layer, the split, the clients' accuracies.

A figure is a panel: a small matplotlib figure with a caption (what is measured, and its unit) and an alternative text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from apiece.report.drawing import (
    COLORS,
    Series,
    blank,
    gradient,
    line,
    positive_range,
    scales,
    series,
    style,
    whole_numbers,
)
from apiece.report.metrics import BY_KEY, Number, by_key, capital, others
from apiece.report.pictures import picture, read
from apiece.report.results import Curve, Runs, measured
from apiece.report.table import comparable
from apiece.report.text import short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = 6  # at most so many runs, or splits, get panels of their own


class Panel(NamedTuple):
    """One figure with its heading, its caption and its alternative text."""

    title: str
    caption: str
    alt: str
    figure: Figure


class Section(NamedTuple):
    """Figures that belong together and share a legend."""

    title: str
    legend: list[Series]
    panels: list[Panel]


def sections(rows: list[Runs]) -> list[Section]:
    """Every figure for which the rows have metrics."""
    with style():
        legend = series(row.name for row in rows) if len(rows) > 1 else []
        layers, consensus = _consensus(rows)
        keys = (key for row in rows for run in row.runs for line in run.metrics for key in line)
        measures, shown = measured(rows), [*comparable(rows), *others(keys, measured(rows))]
        first = measures[0]

        def curves(section: str) -> Section:
            return Section(section, legend, [*_curves(rows, (m for m in shown if m.section == section and m.axis))])

        costed = (by_key(measures)[key] for key in (f"global_{first.name}", f"personal_{first.name}_mean"))
        made = [
            *(curves(capital(measure.title)) for measure in measures),
            Section(f"{capital(first.title)} against cost", legend, [*_curves(rows, costed, "bytes")]),
            *map(curves, ("Loss", "Drift", "Logged")),
            Section("Consensus by layer", layers, consensus),
            Section("Clients", legend, [*_clients(rows)]),
            Section("Split", [], [*_splits(rows)]),
            Section("Observed", [], [*_observed(rows)]),
        ]
    return [section for section in made if section.panels]


# --- curves ----------------------------------------------------------------------------------------------------------
def _curves(rows: list[Runs], wanted: Iterable[Number], against: str = "round") -> Iterator[Panel]:
    by_bytes = against == "bytes"
    for m in wanted:
        curves = [row.curve(m.key, against) for row in rows]
        curves = [Curve(c.x, c.mean * m.scale, c.sd * m.scale) if c else None for c in curves]
        if not any(c and np.isfinite(c.mean).any() for c in curves):
            continue
        figure, axes = blank()
        for curve, look in zip(curves, series(row.name for row in rows), strict=True):
            if curve:
                line(axes, curve, look)
        title, axis = (
            f"{m.heading} against bytes sent" if by_bytes else m.heading,
            f"{m.axis} ({m.unit})" if m.unit else m.axis,
        )
        axes.set(xlabel="bytes sent" if by_bytes else "round", ylabel=axis)
        low, high = positive_range(curves)
        log = m.log or (m.scale == 1 and high > 1000 * low)
        scales(axes, curves, log, "B" if by_bytes else "")
        notes = " Against bytes sent up and down so far." if by_bytes else ""
        notes += _about_log(curves) if log else ""
        notes += " Band: one standard deviation over seeds." if _several(rows) else ""
        ends = [
            f"{row.name} {short(c.mean[0])} to {short(c.mean[-1])}" for row, c in zip(rows, curves, strict=True) if c
        ]
        yield Panel(title, m.sentence + notes, f"{title}, {axis}, first to last: {'; '.join(ends)}.", figure)


def _consensus(rows: list[Runs]) -> tuple[list[Series], list[Panel]]:
    """One panel per run, all on one scale so that they can be compared."""
    metric = BY_KEY["consensus"]
    measured = [metrics.get("consensus") or {} for row in rows for run in row.runs for metrics in run.metrics]
    layers = list(dict.fromkeys(layer for distances in measured for layer in distances))
    many = len(layers) > 2 * len(COLORS)
    looks = gradient(layers) if many else series(layers)
    curves = {row.name: [row.curve(f"consensus/{layer}") for layer in layers] for row in rows}
    moved = [row for row in rows if any(c and (c.mean > 0).any() for c in curves[row.name])]
    shown, left = moved[:PANELS], len(moved) - PANELS
    panels = []
    for row in shown:
        figure, axes = blank()
        for curve, look in zip(curves[row.name], looks, strict=True):
            if curve:
                line(axes, curve._replace(sd=np.zeros_like(curve.sd)), look)
        axes.set(xlabel="round", ylabel=metric.axis)
        scales(axes, [c for other in shown for c in curves[other.name]], log=True)
        caption = (
            metric.sentence
            + (" Mean over seeds." if len(row.runs) > 1 else "")
            + _about_log(curves[row.name])
            + (f" The first {PANELS} runs are shown, {left} are not." if left > 0 and row is shown[-1] else "")
        )
        ends = {layer: c.mean[-1] for layer, c in zip(layers, curves[row.name], strict=True) if c}
        far, near = max(ends, key=lambda k: ends[k]), min(ends, key=lambda k: ends[k])
        alt = (
            f"Consensus distance by layer of {row.name}: at the end largest for {far}, {short(ends[far])}, "
            f"smallest for {near}, {short(ends[near])}."
        )
        panels.append(Panel(row.name, caption, alt, figure))
    if many:  # the legend names the first, the middle and the last color
        depths = (0, len(layers) // 2, len(layers) - 1)
        looks = [looks[i]._replace(label=f"layer {i + 1}, {layers[i]}") for i in depths]
    return looks, panels


# --- pictures --------------------------------------------------------------------------------------------------------
def _clients(rows: list[Runs]) -> Iterator[Panel]:
    of = measured(rows)[0]
    scale, unit, axis = (100, " %", f"{of.title} (%)") if of.unit == "%" else (1, "", of.title)
    for seen, title in ((True, "Clients that trained"), (False, "Unseen clients")):
        made = []
        for row in rows:
            clients = [c for run in row.runs for c in run.clients if bool(c.get("seen", True)) == seen]
            values = np.sort([scale * c[of.name] for c in clients if isinstance(c.get(of.name), int | float)])
            values = values[np.isfinite(values)]
            made.append(values if of.higher else values[::-1])  # from the worst
        if not any(len(values) for values in made):
            continue
        figure, axes = blank()
        for values, look in zip(made, series(row.name for row in rows), strict=True):
            if len(values):
                share = 100 * (np.arange(len(values)) + 0.5) / len(values)
                line(axes, Curve(share, values, np.zeros(len(values))), look)
        axes.set(xlabel="clients, from the worst (%)", ylabel=axis, xlim=(0, 100))
        several = " Clients of all seeds together." if _several(rows) else ""
        told = ", in percent" if of.unit == "%" else ""
        caption = f"Each client's {of.title} on its own test set at the end{told}, clients sorted.{several}"
        write = (lambda v: f"{v:.1f}") if of.unit == "%" else short
        ends = [
            f"{row.name} from {write(v[0])} to {write(v[-1])}{unit}, median {write(float(np.median(v)))}{unit}"
            for row, v in zip(rows, made, strict=True)
            if len(v)
        ]
        yield Panel(title, caption, f"{title}, sorted by {of.title}: {'; '.join(ends)}.", figure)


AREA = "One column per client, one row per class; a disc's area is the number of training samples."
SHADE = "One column per client, one row per class; a stronger color is a larger share of the client's data."


def _splits(rows: list[Runs]) -> Iterator[Panel]:
    pictures: dict[str, tuple[list[str], list[dict[str, Any]], np.ndarray]] = {}
    for row in rows:  # rows with the same split share a picture
        clients = row.runs[0].clients
        counts = [c.get("counts") for c in clients]
        if not clients or any(not isinstance(c, list) or len(c) != len(counts[0] or ()) or not c for c in counts):
            continue
        table = np.array(counts, dtype=float)
        pictures.setdefault(table.tobytes().hex(), ([], clients, table))[0].append(row.name)
    for names, clients, counts in list(pictures.values())[:PANELS]:
        unseen = np.array([not c.get("seen", True) for c in clients])
        few = counts.size <= 400
        figure = _bubbles(counts, unseen) if few else _shades(counts, unseen)
        held = (counts > 0).sum(axis=1)
        sizes = counts.sum(axis=1)
        caption = AREA if few else SHADE
        caption += " Orange: unseen clients." if unseen.any() else ""
        caption += " First seed." if _several(rows) else ""
        alt = (
            f"Split of {counts.shape[1]} classes over {len(counts)} clients: {held.min():.0f} to {held.max():.0f} "
            f"classes and {sizes.min():.0f} to {sizes.max():.0f} samples per client."
        )
        yield Panel("Samples by client and class" if len(pictures) == 1 else ", ".join(names), caption, alt, figure)


def _bubbles(counts: np.ndarray, unseen: np.ndarray) -> Figure:
    clients, classes = counts.shape
    figure, axes = blank(max(4.2, 0.24 * clients + 0.8), max(2.2, 0.24 * classes + 0.8))
    x, y = np.nonzero(counts)
    area = 150 * counts[x, y] / max(counts.max(), 1)
    axes.scatter(x, y, s=area, c=[COLORS[1] if unseen[i] else COLORS[0] for i in x], linewidths=0, alpha=0.85)
    axes.set(xlabel="client", ylabel="class", xlim=(-0.8, clients - 0.2), ylim=(-0.8, classes - 0.2))
    whole_numbers(axes)
    return figure


def _shades(counts: np.ndarray, unseen: np.ndarray) -> Figure:
    from matplotlib.colors import to_rgb

    clients, classes = counts.shape
    figure, axes = blank(9.2, min(5.5, max(2.4, 0.2 * classes + 0.8)))
    pixels = np.zeros((classes, clients, 4))  # transparency is the shade, for light and dark pages
    pixels[..., :3] = np.where(unseen[None, :, None], to_rgb(COLORS[1]), to_rgb(COLORS[0]))
    pixels[..., 3] = (counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)).T ** 0.6
    axes.imshow(pixels, aspect="auto", origin="lower", interpolation="none")
    axes.set(xlabel="client", ylabel="class")
    axes.grid(False)
    whole_numbers(axes)
    return figure


def _observed(rows: list[Runs]) -> Iterator[Panel]:
    for row in rows[:PANELS]:
        for name, images in read(row.runs[0].path).items():
            title = name if len(rows) == 1 else f"{row.name}: {name}"
            caption = "Made for one client at the end, sorted by label." + (" First seed." if _several(rows) else "")
            yield Panel(title, caption, f"{title}: a sheet of small pictures.", picture(images))


def _about_log(curves: Iterable[Curve | None]) -> str:
    zero = any(curve is not None and (curve.mean == 0).any() for curve in curves)
    return " Log scale; zeros are not drawn." if zero else " Log scale."


def _several(rows: list[Runs]) -> bool:
    return any(len(row.runs) > 1 for row in rows)
