"""Figures over rounds and over bytes, and drift by layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from apiece.report.charts import Rounds, look_of, number
from apiece.report.drawing import COLORS, Series, dots, gradient, line, panel, positive_range, scales, series, thinned
from apiece.report.metrics import BY_KEY, Number
from apiece.report.panels import MOST, Panel, several
from apiece.report.records import Curve, Runs, Spread
from apiece.report.table import VIRTUAL
from apiece.report.text import cell, short

USUAL = 16  # figures over rounds that a page usually has


def curves(rounds: Rounds, wanted: Iterable[Number], against: str = "round") -> Iterator[Panel]:
    """One figure for each number that some row has measured, against rounds or bytes."""
    rows = rounds.rows
    looks = series(row.name for row in rows)
    for m in wanted:
        found = [None if m.column == "Divergence" and row.alone else row.curve(m.key, against) for row in rows]
        found = [Curve(c.x, c.mean * m.scale, c.sd * m.scale) if c else None for c in found]
        by_bytes = against == "bytes"
        most = max((c.x.max() for c in found if c), default=0.0)
        silent = [row.name for row, c in zip(rows, found, strict=True) if by_bytes and c and c.x.max() < most / 100]
        found = [None if row.name in silent else c for row, c in zip(rows, found, strict=True)]  # else a column of dots
        if not any(c and np.isfinite(c.mean).any() for c in found):
            continue
        log = m.logarithmic(*positive_range(found))
        if all(len(c.x) == 1 for c in found if c):
            if not by_bytes:
                yield _once(rows, m, found, looks, log)
            continue
        figure, axes = panel()
        for curve, look in zip(found, looks, strict=True):
            if few := thinned(curve, USUAL * len(rows)):
                line(axes, few, look, log)
        title = f"{m.heading} against bytes sent" if by_bytes else m.heading
        axes.set(xlabel="bytes sent" if by_bytes else "round", ylabel=_axis(m))
        scales(axes, found, log, "B" if by_bytes else "")
        notes = " Against bytes sent up and down so far." if by_bytes else ""
        notes += _virtual(rows, m)
        notes += f" Not drawn, as they send less than a hundredth of the most: {', '.join(silent)}." if silent else ""
        notes += about_log(found) if log else ""
        notes += coinciding(rows, found)
        notes += " Band: one standard deviation over seeds." if several(rows) else ""
        ends = [
            f"{row.name} {short(c.mean[0])} to {short(c.mean[-1])}" for row, c in zip(rows, found, strict=True) if c
        ]
        alt = f"{title}, {_axis(m)}, first to last: {'; '.join(ends)}."
        lines = [made for made, c in zip(rounds.lines(m.key, looks, m.scale), found, strict=True) if c or by_bytes]
        yield Panel(title, m.sentence + notes, alt, figure, _chart(m, lines, log, "bytes" if by_bytes else ""))


def _once(rows: list[Runs], m: Number, found: list[Curve | None], looks: list[Series], log: bool) -> Panel:
    """What every row has measured in one round alone: a value for each, and no line over rounds."""
    values = [row.over(lambda run: run.last(m.key)) if c else None for row, c in zip(rows, found, strict=True)]
    scaled = [Spread(v.mean * m.scale, v.sd * m.scale, v.seeds) if v and np.isfinite(v.mean) else None for v in values]
    write = partial(cell, unit="")
    figure = dots(scaled, looks, log, write)
    figure.axes[0].set(xlabel=_axis(m))
    ends = [f"{row.name} {write(value)}" for row, value in zip(rows, scaled, strict=True) if value]
    when = sorted({int(c.x[0]) for c in found if c})
    told = f" Measured once, after round {when[0]}." if len(when) == 1 else " Measured once, after the last round."
    notes = told + _virtual(rows, m) + (" Bar: one standard deviation over seeds." if several(rows) else "")
    lines = [
        look_of(look) | {"values": [number(m.scale * v) for run in row.runs if (v := run.last(m.key)) is not None]}
        for row, look, c in zip(rows, looks, found, strict=True)
        if c
    ]
    chart = _chart(m, lines, log) | {"kind": "dots"}
    return Panel(m.heading, m.sentence + notes, f"{m.heading}, {_axis(m)}: {'; '.join(ends)}.", figure, chart)


def consensus(rounds: Rounds) -> tuple[list[Series], list[Panel]]:
    """Drift by layer, one figure for each of the first runs, all on one scale so that they can be compared."""
    metric = BY_KEY["consensus"]
    rows = [row for row in rounds.rows if not row.alone]
    measured = [metrics.get("consensus") or {} for row in rows for run in row.runs for metrics in run.metrics]
    layers = list(dict.fromkeys(layer for distances in measured for layer in distances))
    many = len(layers) > 2 * len(COLORS)
    looks = gradient(layers) if many else series(layers)
    found = {row.name: [row.curve(f"consensus/{layer}") for layer in layers] for row in rows}
    moved = [row for row in rows if any(c and (c.mean > 0).any() for c in found[row.name])]
    shown, left = moved[:MOST], len(moved) - MOST
    panels = []
    for row in shown:
        flat = [Curve(c.x, c.mean, np.zeros_like(c.sd)) if c else None for c in found[row.name]]
        every = [c for other in shown for c in found[other.name]]
        notes = " Mean over seeds." if len(row.runs) > 1 else ""
        notes += f" The first {MOST} runs are shown, {left} are not." if left > 0 and row is shown[-1] else ""
        ends = {layer: c.mean[-1] for layer, c in zip(layers, flat, strict=True) if c}
        far, near = max(ends, key=lambda k: ends[k]), min(ends, key=lambda k: ends[k])
        alt = (
            f"Consensus distance by layer of {row.name}: at the end largest for {far}, {short(ends[far])}, "
            f"smallest for {near}, {short(ends[near])}."
        )
        if all(len(c.x) == 1 for c in every if c):
            values = [Spread(float(c.mean[0]), 0.0, 1) if c else None for c in flat]
            figure = dots(values, looks, True, partial(cell, unit=""))
            figure.axes[0].set(xlabel=metric.axis)
            lines = [look_of(k) | {"values": [number(v.mean)] if v else []} for k, v in zip(looks, values, strict=True)]
            kind = {"kind": "dots"}
        else:
            figure, axes = panel()
            for curve, look in zip(flat, looks, strict=True):
                if few := thinned(curve, 2 * USUAL * len(layers)):
                    line(axes, few, look)
            axes.set(xlabel="round", ylabel=metric.axis)
            scales(axes, every, log=True)
            notes += about_log(flat)
            lines = [
                rounds.lines(f"consensus/{layer}", [look], of=row)[0] for layer, look in zip(layers, looks, strict=True)
            ]
            kind = {}
        panels.append(Panel(row.name, metric.sentence + notes, alt, figure, _chart(metric, lines, True) | kind))
    if many:  # the legend names the first, the middle and the last color
        depths = (0, len(layers) // 2, len(layers) - 1)
        looks = [looks[i]._replace(label=f"layer {i + 1}, {layers[i]}") for i in depths]
    return looks, panels


def about_log(found: Iterable[Curve | None]) -> str:
    """What a caption says of a log scale."""
    zero = any(curve is not None and (curve.mean == 0).any() for curve in found)
    return " Log scale; zeros are not drawn." if zero else " Log scale."


def coinciding(rows: Iterable[Runs], found: Iterable[Curve | None]) -> str:
    """What a caption says of lines that hide each other, since they are the same; "" if none are."""
    same = dict[bytes, list[str]]()
    for row, curve in zip(rows, found, strict=True):
        if curve is not None:
            same.setdefault(curve.x.tobytes() + curve.mean.tobytes(), []).append(row.name)
    return "".join(f" The same line: {', '.join(names)}." for names in same.values() if len(names) > 1)


def _virtual(rows: list[Runs], m: Number) -> str:
    """What a caption says of rows whose global model is virtual; "" if none is."""
    names = [row.name for row in rows if m.of_server and row.virtual]
    return f" Of {', '.join(names)}: {VIRTUAL}." if names else ""


def _axis(m: Number) -> str:
    return f"{m.axis} ({m.unit})" if m.unit else m.axis


def _chart(m: Number, lines: list[Any], log: bool, x: str = "") -> dict[str, Any]:
    return {"axis": _axis(m), "unit": m.unit, "log": log, "x": x, "lines": lines}
