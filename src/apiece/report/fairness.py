"""How a metric is distributed over clients, row by row: sorted clients, the spread of each row, and its table."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from apiece.report.charts import look_of, number, thin
from apiece.report.drawing import Series, line, named_rows, panel, series
from apiece.report.metrics import Measure, Number, tenth
from apiece.report.panels import Panel, several
from apiece.report.records import Curve, Run, Runs, measured
from apiece.report.table import Column, columns_of
from apiece.report.text import short

CLIENTS = 3_000  # clients of all lines together that the page's script gets
NAMED = 16  # up to so many clients have a column each
DRAWN = re.compile(r"client-\d+")  # the name of a client that a split invented: another one under another seed


def fairness(rows: list[Runs]) -> Iterator[Panel]:
    """Each client's value of the first metric at the end, sorted, and its spread: those that trained, then the rest."""
    of = measured(rows)[0]
    looks = series(row.name for row in rows)
    for seen, title in ((True, "Clients that trained"), (False, "Unseen clients")):
        found = [[pair for run in row.runs for pair in _clients(run, of, seen)] for row in rows]
        found = [sorted(pairs, key=lambda pair: pair[1], reverse=not of.higher) for pairs in found]  # from the worst
        if any(found):
            yield _sorted(rows, of, title, found, looks)
            yield _spread(rows, of, title, found, looks)


def table(rows: list[Runs]) -> list[Column]:
    """The worst, the worst tenth, the median, the best tenth and the deviation over clients that trained."""
    of = measured(rows)[0]

    def column(name: str, caption: str, of_values: Any, higher: bool = of.higher) -> Any:
        shown = Number("", "", "", caption, unit=of.unit, column=name, ranked=True, higher=higher)

        def read(run: Run) -> float | None:
            values = sorted((value for _, value in _clients(run, of, True)), reverse=not of.higher)
            return of_values(np.array(values) / of_scale(of)) if values else None

        return shown, read

    return columns_of(
        rows,
        (
            column("Worst client", f"the client with the {of.worst} {of.title}", lambda v: v[0]),
            column("Worst tenth", "mean over the worst tenth of the clients", lambda v: v[: tenth(len(v))].mean()),
            column("Median", "the client in the middle", np.median),
            column("Best tenth", "mean over the best tenth of the clients", lambda v: v[-tenth(len(v)) :].mean()),
            column("Deviation", "standard deviation over clients; lower is fairer", np.std, higher=False),
        ),
    )


def by_client(rows: list[Runs]) -> list[Column]:
    """A column for each client that trained, where the user's data name them; empty if they are many."""
    of, sizes = measured(rows)[0], dict[str, list[tuple[int, int | None]]]()
    for record in (record for row in rows for run in row.runs for record in run.clients if record.get("seen", True)):
        counts = int(record.get("samples", 0)), record.get("tests")
        sizes.setdefault(str(record.get("name", "")), []).append(counts)
    if len(sizes) > NAMED or any(DRAWN.fullmatch(name) for name in sizes):
        return []
    tested = all(tests is not None for counts in sizes.values() for _, tests in counts)  # an older run says no number

    def column(name: str, counts: list[tuple[int, int | None]]) -> Any:
        kinds = {"training": [samples for samples, _ in counts]}
        kinds |= {"test": [int(tests or 0) for _, tests in counts]} if tested else {}
        many = max([*kinds.values()][-1]) != 1
        told = f"{' and '.join(_between(each, kind) for kind, each in kinds.items())} sample{'s' * many}"
        shown = Number("", "", "", told, unit=of.unit, column=name, ranked=True, higher=of.higher)

        def read(run: Run) -> float | None:
            values = [value for own, value in _clients(run, of, True) if own == name]
            return values[0] / of_scale(of) if values else None

        return shown, read

    return columns_of(rows, (column(name, counts) for name, counts in sorted(sizes.items())))


def _between(counts: list[int], kind: str) -> str:
    few, most = min(counts), max(counts)
    return f"{most} {kind}" if few == most else f"{few} to {most} {kind}"


def of_scale(of: Measure) -> float:
    """The factor from a value of the metric to what its figures show."""
    return 100.0 if of.unit == "%" else 1.0


def _clients(run: Run, of: Measure, seen: bool) -> list[tuple[str, float]]:
    """The clients' names and their finite values, as figures show them."""
    own = [(str(c.get("name", "")), c.get(of.name)) for c in run.clients if bool(c.get("seen", True)) == seen]
    return [(name, of_scale(of) * v) for name, v in own if isinstance(v, int | float) and math.isfinite(v)]


def _sorted(
    rows: list[Runs], of: Measure, title: str, found: list[list[tuple[str, float]]], looks: list[Series]
) -> Panel:
    figure, axes = panel()
    most = max(20, CLIENTS // len(rows))
    lines = []
    for pairs, look in zip(found, looks, strict=True):
        share = 100 * (np.arange(len(pairs)) + 0.5) / max(1, len(pairs))
        kept = thin(range(len(pairs)), most)
        lines.append(
            look_of(look)
            | {"xs": [number(share[i]) for i in kept], "ys": [number(pairs[i][1]) for i in kept]}
            | {"names": [pairs[i][0] for i in kept]}
        )
        if pairs:
            values = np.array([value for _, value in pairs])[kept]
            line(axes, Curve(share[kept], values, np.zeros(len(kept))), look)
    axes.set(xlabel="clients, from the worst (%)", ylabel=_axis(of), xlim=(0, 100))
    notes = " Clients of all seeds together." if several(rows) else ""
    told = ", in percent" if of.unit == "%" else ""
    caption = f"Each client's {of.title} on its own test set at the end{told}, clients sorted.{notes}"
    alt = f"{title}, sorted by {of.title}: {'; '.join(_ends(rows, of, found))}."
    return Panel(title, caption, alt, figure, _chart(of, lines) | {"kind": "clients"})


def _spread(
    rows: list[Runs], of: Measure, title: str, found: list[list[tuple[str, float]]], looks: list[Series]
) -> Panel:
    """One line a row: from its lowest to its highest client, thick between the quartiles, a dot at the median."""
    known = [(pairs, look) for pairs, look in zip(found, looks, strict=True) if pairs]
    figure, axes = panel(0.55 + 0.27 * len(known))
    lines = []
    for place, (pairs, look) in enumerate(known):
        five = np.percentile([value for _, value in pairs], [0, 25, 50, 75, 100])
        axes.plot(five[[0, 4]], [place, place], color=look.color, linewidth=1.2)
        axes.plot(five[[1, 3]], [place, place], color=look.color, linewidth=6, alpha=0.45, solid_capstyle="butt")
        axes.plot(five[2], place, "o", color=look.color, markersize=5)
        lines.append(look_of(look) | {"values": [number(value) for value in five]})
    axes.set(xlabel=_axis(of), ylim=(len(known) - 0.5, -0.5))
    named_rows(axes, [look.label for _, look in known])
    caption = (
        f"From the lowest to the highest client; thick: the half of the clients in the middle; dot: the median. "
        f"A short line is fair: all clients have about the same {of.title}."
    )
    alt = f"{title}, spread of {of.title}: {'; '.join(_ends(rows, of, found))}."
    return Panel(f"{title}, spread", caption, alt, figure, _chart(of, lines) | {"kind": "spread"})


def _ends(rows: list[Runs], of: Measure, found: list[list[tuple[str, float]]]) -> list[str]:
    write, unit = ((lambda v: f"{v:.1f}"), " %") if of.unit == "%" else (short, "")
    return [
        f"{row.name} from {write(pairs[0][1])} to {write(pairs[-1][1])}{unit}, "
        f"median {write(float(np.median([value for _, value in pairs])))}{unit}"
        for row, pairs in zip(rows, found, strict=True)
        if pairs
    ]


def _axis(of: Measure) -> str:
    return f"{of.title} ({of.unit})" if of.unit else of.title


def _chart(of: Measure, lines: list[Any]) -> dict[str, Any]:
    return {"axis": _axis(of), "unit": of.unit, "log": False, "x": "", "lines": lines}
