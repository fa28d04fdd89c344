"""The table of results: one row per algorithm, one column per metric, for the terminal and for the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from apiece.report.for_programs import read, rows_for_programs
from apiece.report.metrics import ACCURACY, BY_KEY, Measure, Number, by_key, capital, numbers, refuse_target
from apiece.report.notes import risen, unfinished
from apiece.report.records import Run, Runs, best, compared, measured, spread
from apiece.report.results import read_runs, unlike
from apiece.report.terminal import About, Best, Fitting
from apiece.report.text import amount, number, percent

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table
    from rich.text import Text

UNBEATEN = "every mean that Welch's t-test (one-sided, 5 %) does not put below the highest"  # is bold
UNDERCUT = "every mean that Welch's t-test (one-sided, 5 %) does not put above the lowest"  # where lower is better
UNMATCHED = "every mean that Welch's t-test (one-sided, 5 %) does not put behind the best"  # where some of each are
IS_BOLD = "is bold, unless all are equal"  # what follows one of these, or a value
VIRTUAL = "the average of clients' models, which the server does not have"  # a global model with personal parameters
NAME, TITLE = "Algorithm", 12  # above the rows' names; a longer title of a column may be wrapped
WRITTEN = {"%": percent, "B": amount}  # by unit; other units have plain numbers


class Column(NamedTuple):
    """One number, with a cell per row, the rows that no other row exceeds (only of metrics), and those whose number is
    of a virtual global model.
    """

    metric: Number
    cells: list[str]
    best: frozenset[int]
    virtual: frozenset[int] = frozenset()


def columns(rows: list[Runs]) -> list[Column]:
    """Every column that at least one row measured, with `–` in other rows."""
    uneven = len({run.last("round") for row in rows for run in row.runs}) > 1
    shown = (metric for metric in comparable(rows) if metric.column and (uneven or metric.key != "round"))
    return columns_of(rows, ((metric, partial(read, metric)) for metric in shown))


def readings(rows: list[Runs]) -> list[Column]:
    """The global value of the first metric, read off a curve in the ways of different papers."""
    key = _first(rows)
    ways: tuple[tuple[str, str, str, Callable[[Run], float | None]], ...] = (
        ("Last", "", "the last round", lambda run: run.last(key)),
        ("Best", "", "the best round, which looks at the test set", lambda run: run.best(key)),
        ("Mean", "last 10", "mean of the last ten measured", lambda run: run.mean_of_last(key, 10)),
        ("Smoothed", "FedInit", "moving average of 5, the best of the last 50", lambda run: run.smoothed(key)),
    )
    usual = by_key(measured(rows))[key]
    made = ((usual._replace(column=column, note=note, caption=caption), way) for column, note, caption, way in ways)
    return columns_of(rows, made)


def differences(rows: list[Runs]) -> list[Column]:
    """The first metric of each row minus that of the first row, seed by seed; none where a row has one seed alone.

    Runs of one seed have their first model, and most have their split, in common: what these do to a value falls out
    of the difference.
    """
    base, name = {run.config.get("seed"): run for run in rows[0].runs}, measured(rows)[0].name
    if len(base) < 2 or len(rows) < 2:
        return []

    def minus(key: str, run: Run) -> float | None:
        other = base.get(run.config.get("seed"))
        if other is None or other is run:
            return None
        mine, its = run.last(key), other.last(key)
        return None if mine is None or its is None else mine - its

    keys = (f"global_{name}", f"personal_{name}_mean", f"adapted_{name}")
    known = [by_key(measured(rows))[key]._replace(ranked=False) for key in keys]
    return columns_of(rows, ((of, partial(minus, of.key)) for of in known if not (of.of_server and rows[0].virtual)))


def default_target(rows: list[Runs]) -> float | None:
    """A target that distinguishes rows: for a share, 95 % of the median row's best, rounded down to a whole percent;
    for another metric, 5 % worse than that best, with two digits. Virtual global models do not count, nor do pooled
    data beside other rows.
    """
    first, key = measured(rows)[0], _first(rows)
    own = [row for row in rows if not row.virtual]
    own = [row for row in own if not row.alone] or own
    reached = (row.over(lambda run: run.best(key)) for row in own)
    tops = sorted(top.mean for top in reached if top and math.isfinite(top.mean))
    if not tops:
        return None
    middle = tops[len(tops) // 2]
    if first.unit == "%" and first.higher:
        return math.floor(95 * middle + 1e-9) / 100
    return float(f"{middle + (-0.05 if first.higher else 0.05) * abs(middle):.2g}")


def costs(rows: list[Runs], target: float) -> list[Column]:
    """Rounds, bytes and seconds until every row first reached `target`, and how many seeds did, if not all; `–` for
    virtual global models.
    """
    key = _first(rows)
    reached = [[] if row.virtual else [run.to_target(target, key) for run in row.runs] for row in rows]
    none = " (–: the server has no global model)" if any(row.virtual for row in rows) else ""
    made = []
    for metric, caption in (
        (BY_KEY["round"], f"rounds until the {measured(rows)[0].title} was first reached{none}"),
        (BY_KEY["bytes"], "bytes sent both ways by then"),
        (BY_KEY["seconds"]._replace(note=""), "seconds of training by then"),
    ):
        values = [spread(getattr(c, metric.column.lower()) for c in row if c) for row in reached]
        cells = []
        for row, value, virtual in zip(reached, values, (row.virtual for row in rows), strict=True):
            count = sum(cost is not None for cost in row)
            note = f" ({count} of {len(row)} seeds)" if 0 < count < len(row) else ""
            write = WRITTEN.get(metric.unit, number)
            cells.append(write(value) + note if value else "–" if count or virtual else "not reached")
        if any(values):
            made.append(Column(metric._replace(caption=caption), cells, frozenset()))
    return made


def compare(folders: str | Path | Iterable[str | Path], target: float | None = None) -> Group:
    """The results of run folders, to print with rich: what was reached, then what it cost.

    `target`: a global value of the first metric; the table says after how many rounds, bytes and seconds it was
    reached. UserError if a folder holds no run.
    """
    return summary(read_runs(folders), target)


def for_programs(folders: Iterable[str | Path], target: float | None = None) -> list[dict[str, Any]]:
    """`compare` as values for JSON."""
    rows = read_runs(folders)
    refuse_target(target, measured(rows)[0].unit)
    return rows_for_programs(rows, [number for number in comparable(rows) if number.column], target)


def summary(rows: list[Runs], target: float | None = None) -> Group:
    """`compare` of rows in memory."""
    from rich.console import Group

    first, own = measured(rows)[0], {capital(measure.title) for measure in measured(rows)}
    refuse_target(target, first.unit)
    made = [column for column in columns(rows) if not column.metric.on_page_alone]
    reached = [column for column in made if column.metric.section in (*own, "Drift")]
    spent = [column for column in made if column not in reached]
    about = [f"mean ± standard deviation over {many} seeds"] if (many := seeds(rows)) else []
    about += [f"{bold(rows)} {IS_BOLD}"] if any(column.best for column in made) else []
    about += [f"†: {VIRTUAL}"] if any(column.virtual for column in made) else []
    note: list[RenderableType] = [About(f" {capital('; '.join(about))}.")] if about else []
    tables = [_table(rows, part) for part in (reached, spent) if part]
    every = [(row.name, run) for row in rows for run in row.runs]
    begun = [f"{run.path}: {line.partition(': ')[2]}" for who, run in every for line in unfinished(who, run)]
    told = [*begun, *[line for who, run in every for line in risen(who, run)][:1]]
    told = [warning, *told] if (warning := capital(unlike(rows))) else told
    note += [About(f" {line}") for line in told]
    if target is not None:
        to_it = costs(rows, target)
        wanted = first.told(target)
        missed = "No row has a global model" if all(row.virtual for row in rows) else f"No run reached {wanted}"
        note.append(f" To a global {first.title} of {wanted}:" if to_it else f" {missed}.")
        note += [_table(rows, to_it)] if to_it else []
    return Group(*tables, *note)


def seeds(rows: list[Runs]) -> str:
    """Over how many seeds the rows' means are; "" if each row has one."""
    counts = sorted({len(row.runs) for row in rows})
    return " to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))) if counts[-1] > 1 else ""


def unbeaten(measures: Iterable[Measure], rows: Iterable[Runs] = ()) -> str:
    """What is bold in tables of these metrics, and of these rows."""
    ways = {measure.higher for measure in measures}
    return (UNMATCHED if len(ways) > 1 else UNBEATEN if True in ways else UNDERCUT) + left_out(rows)


def bold(rows: list[Runs]) -> str:
    """What is bold in a table of these rows: with one seed the best value, with several every mean not below it."""
    measures = measured(rows)
    if any(len(row.runs) > 1 for row in rows):
        return unbeaten(measures, rows)
    best = measures[0].best if len({measure.higher for measure in measures}) == 1 else "best"
    return f"the {best}{left_out(rows)}"


def left_out(rows: Iterable[Runs]) -> str:
    """That pooled data, with which all are compared, are never the best, where they are a row; "" otherwise."""
    return " (centralized left out)" if any(row.alone for row in rows) else ""


def _first(rows: list[Runs]) -> str:
    """The key of the global value of the first metric."""
    return f"global_{measured(rows)[0].name}"


def _table(rows: list[Runs], part: list[Column]) -> Fitting:
    """The columns beside the rows' names, each as wide as what stands in it; a long title above it is wrapped."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    plain = measured(rows) == (ACCURACY,)
    above = [[column.metric.column, "" if plain else column.metric.of, column.metric.below] for column in part]
    widths = [
        max(2 + max(map(len, column.cells)), len(of), len(below), min(len(title), TITLE), *map(len, title.split()))
        for column, (title, of, below) in zip(part, above, strict=True)
    ]

    def table(places: list[int]) -> Table:
        made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        made.add_column(NAME, overflow="fold", vertical="top")
        for place in places:
            heading = "\n".join("\n".join(wrap(text, widths[place])) for text in above[place] if text)
            made.add_column(Text(heading), justify="right", no_wrap=True)
        for index, row in enumerate(rows):
            made.add_row(Text(row.name), *(_shown(part[place], index) for place in places))
        return made

    return Fitting(max(len(name) for name in (NAME, *(row.name for row in rows))), widths, table)


def _shown(column: Column, row: int) -> Best | Text:
    from rich.text import Text

    cell = column.cells[row]
    return Best(cell) if row in column.best else Text(f"† {cell}" if row in column.virtual else cell)


def columns_of(rows: list[Runs], wanted: Iterable[tuple[Number, Callable[[Run], float | None]]]) -> list[Column]:
    """A column for each number that some row has, as it is derived from a run."""
    made = []
    for metric, derive in wanted:
        values = [None if metric.column == "Divergence" and row.alone else row.over(derive) for row in rows]
        if not any(values):
            continue
        write = WRITTEN.get(metric.unit, number)
        virtual = frozenset(i for i, row in enumerate(rows) if metric.of_server and row.virtual and values[i])
        tops = best(compared(rows, values, metric.of_server), metric.higher) if metric.ranked else frozenset[int]()
        made.append(Column(metric, [write(value) if value else "–" for value in values], tops, virtual))
    return made


def comparable(rows: list[Runs]) -> list[Number]:
    """All numbers, but only one of the two divergences, so that one column compares one thing: the one that more rows
    measured, or the one over all clients if as many rows measured it.
    """
    every = numbers(measured(rows))
    keys = [metric.key for metric in every if metric.column == "Divergence"]
    kept = max(keys, key=lambda key: sum(row.over(lambda run: run.last(key)) is not None for row in rows))
    return [metric for metric in every if metric.key == kept or metric.key not in keys]
