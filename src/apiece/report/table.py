"""The table of results: one row an algorithm, one column a measure, for the terminal and for the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from apiece.report.results import Run, Runs, Spread, best, read_runs, spread

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

ACCURACIES = (
    ("Global", "global_accuracy", "the server's model on the official test set"),
    ("Personal", "personal_accuracy_mean", "mean over clients of each client's accuracy on its own test set"),
    ("Personal, worst tenth", "personal_accuracy_worst_decile", "mean of the worst tenth of the clients"),
    ("Personal, unmasked", "personal_accuracy_unmasked", "as personal, without the class mask"),
    ("After local training", "adapted_accuracy", "as personal, after local training"),
    ("Unseen", "unseen_accuracy", "clients that never trained, without adapting"),
    ("Unseen, unmasked", "unseen_accuracy_unmasked", "as unseen, without the class mask"),
    ("Unseen, adapted", "unseen_adapted_accuracy", "clients that never trained, after local steps"),
)
SECONDARY = ("Personal, worst tenth", "After local training")  # left to the page: a terminal is narrow
UNBEATEN = "what Welch's t-test (one-sided, 5 %) does not put below the highest"  # said of bold numbers
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


class Column(NamedTuple):
    """One measure: its heading and unit, one cell a row, and which rows no other is above (of accuracies alone)."""

    group: str
    title: str
    unit: str
    about: str
    cells: list[str]
    best: frozenset[int]


class Measure(NamedTuple):
    """How a column is made: a value of a run, and how it is written."""

    group: str
    title: str
    unit: str
    about: str
    derive: Callable[[Run], float | None]
    write: Callable[[Spread], str]
    ranked: bool = False


def short(value: float, unit: str = "") -> str:
    """A number in short form, three digits.

    >>> short(1234567), short(0.01234), short(98_700, "B"), short(12)
    ('1.23 M', '0.0123', '98.7 kB', '12')
    """
    return _with_prefix(value, 0.0, unit)


def percent(value: Spread) -> str:
    """A share in per cent: `71.20 ± 0.31`."""
    deviation = f" ± {100 * value.sd:.2f}" if value.sd else ""
    return f"{100 * value.mean:.2f}{deviation}" if math.isfinite(value.mean) else "NaN"


def number(value: Spread) -> str:
    """A number in short form: `1.23 ± 0.02 M`."""
    return _with_prefix(value.mean, value.sd)


def amount(value: Spread) -> str:
    """A number of bytes in short form, decimal prefixes: `1.23 MB`."""
    return _with_prefix(value.mean, value.sd, "B")


def told(value: Spread | None, write: Callable[[float], str]) -> str:
    """A mean and its deviation over seeds in digits of one's own; nothing where nothing was measured.

    >>> told(Spread(1.0, 0.25, 3), lambda v: f"{v:.1f}")
    '1.0 ± 0.2'
    """
    if value is None:
        return ""
    return write(value.mean) + (f" ± {write(value.sd)}" if value.seeds > 1 and value.sd else "")


def markdown(headings: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A table in Markdown, columns of numbers to the right.

    >>> print(markdown(["", "accuracy %"], [["`fedavg`", "80.9 ± 0.5"], ["`local`", "–"]]))
    |  | accuracy % |
    |---|---:|
    | `fedavg` | 80.9 ± 0.5 |
    | `local` | – |
    """
    table = [[cell.replace("|", "\\|") for cell in line] for line in (headings, *lines)]
    numbers = [
        all(cell.lstrip("*-–")[:1] in "0123456789" for cell in column) for column in zip(*table[1:], strict=True)
    ]
    ruler = "|" + "".join("---:|" if right else "---|" for right in numbers or [False] * len(table[0]))
    head, *body = ["| " + " | ".join(line) + " |" for line in table]
    return "\n".join([head, ruler, *body])


def columns(rows: list[Runs]) -> list[Column]:
    """Every column that at least one row measured; `–` where a row did not."""
    return _columns(rows, _measures(rows))


def readings(rows: list[Runs]) -> list[Column]:
    """The global accuracy as different papers read it off a curve."""
    ways: tuple[tuple[str, str, str, Callable[[Run], float | None]], ...] = (
        ("Last", "", "the last round", lambda run: run.last("global_accuracy")),
        ("Best", "", "the best round, which looks at the test set", lambda run: run.best("global_accuracy")),
        ("Mean", "last 10", "mean of the last ten measured", lambda run: run.mean_of_last("global_accuracy", 10)),
        (
            "Smoothed",
            "FedInit",
            "moving average of 5, the best of the last 50",
            lambda run: run.smoothed("global_accuracy"),
        ),
    )
    return _columns(rows, [Measure("", title, unit, about, way, percent, True) for title, unit, about, way in ways])


def default_target(rows: list[Runs], key: str = "global_accuracy") -> float | None:
    """A target that tells rows apart: 95 % of the median row's best accuracy, rounded down to a whole per cent."""
    tops = sorted(s.mean for row in rows if (s := row.over(lambda run: run.best(key))) and math.isfinite(s.mean))
    return math.floor(95 * tops[len(tops) // 2] + 1e-9) / 100 if tops else None


def costs(rows: list[Runs], target: float, key: str = "global_accuracy") -> list[Column]:
    """Rounds, bytes and seconds until every row first reached `target`; how many seeds did where not all."""
    reached = [[run.to_target(target, key) for run in row.runs] for row in rows]
    made = []
    for title, unit, about, write in (
        ("Rounds", "", "rounds until the accuracy was first reached", number),
        ("Bytes", "up + down", "bytes sent both ways by then", amount),
        ("Seconds", "s", "seconds of training by then", number),
    ):
        values = [spread(getattr(c, title.lower()) for c in row if c) for row in reached]
        cells = []
        for row, value in zip(reached, values, strict=True):
            count = sum(cost is not None for cost in row)
            note = f" ({count} of {len(row)} seeds)" if 0 < count < len(row) else ""
            cells.append(write(value) + note if value else "–" if count else "not reached")
        if any(values):
            made.append(Column("", title, unit, about, cells, frozenset()))
    return made


def compare(folders: str | Path | Iterable[str | Path], target: float | None = None) -> Group:
    """The results of run folders, to print with rich: what was reached, then what it cost.

    `target`: a global accuracy, whose rounds, bytes and seconds are told too. UserError if a folder holds no run.
    """
    return summary(read_runs(folders), target)


def summary(rows: list[Runs], target: float | None = None) -> Group:
    """`compare` of rows that are at hand."""
    from rich.console import Group

    made = [column for column in columns(rows) if column.title not in SECONDARY]
    reached = [column for column in made if column.group in ("Accuracy", "Drift")]
    spent = [column for column in made if column not in reached]
    seeds = max(len(row.runs) for row in rows)
    note = [f" Mean ± standard deviation over {seeds} seeds; {UNBEATEN} is bold."] if seeds > 1 else []
    tables = [_table(rows, part) for part in (reached, spent) if part]
    if target is not None:
        to_it = costs(rows, target)
        note.append(
            f" To a global accuracy of {100 * target:g} %:" if to_it else f" No run reached {100 * target:g} %."
        )
        note += [_table(rows, to_it)] if to_it else []
    return Group(*tables, *note)


def _table(rows: list[Runs], part: list[Column]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("Algorithm", overflow="fold", vertical="top")
    for column in part:
        heading = f"{column.title}\n{column.unit}" if column.unit else column.title
        table.add_column(Text(heading), justify="right", overflow="fold")
    for index, row in enumerate(rows):
        cells = [Text(column.cells[index], style="bold" if index in column.best else "") for column in part]
        table.add_row(Text(row.name), *cells)
    return table


def _columns(rows: list[Runs], measures: Iterable[Measure]) -> list[Column]:
    made = []
    for measure in measures:
        values = [row.over(measure.derive) for row in rows]
        if not any(values):
            continue
        cells = [measure.write(value) if value else "–" for value in values]
        tops = best(values) if measure.ranked else frozenset[int]()
        made.append(Column(measure.group, measure.title, measure.unit, measure.about, cells, tops))
    return made


def _measures(rows: list[Runs]) -> list[Measure]:
    def last(key: str) -> Callable[[Run], float | None]:
        return lambda run: run.last(key)

    drift = drift_key(rows)
    uneven = len({run.last("round") for row in rows for run in row.runs}) > 1
    who = "all clients" if drift == "divergence_all" else "the cohort"
    return [
        Measure("Accuracy", title, "%", about, last(key), percent, ranked=True) for title, key, about in ACCURACIES
    ] + [
        Measure("Drift", "Divergence", "", f"mean squared distance of {who} from the new model", last(drift), number),
        Measure("Sent", "Numbers up", "", "numbers sent from clients to the server", last("numbers_up"), number),
        Measure("Sent", "Numbers down", "", "numbers sent from the server to clients", last("numbers_down"), number),
        Measure("Sent", "Bytes", "up + down", "bytes sent both ways", last("bytes"), amount),
        Measure(
            "Time", "Seconds", "a round", "median over rounds, training only", lambda run: run.median("seconds"), number
        ),
        *([Measure("Time", "Rounds", "", "rounds done", last("round"), number)] if uneven else []),
    ]


def drift_key(rows: list[Runs]) -> str:
    """The divergence that more rows measured, for one column compares one thing; that over all clients if as many."""
    keys = ("divergence_all", "divergence_selected")
    return max(keys, key=lambda key: sum(row.over(lambda run: run.last(key)) is not None for row in rows))


def _with_prefix(mean: float, sd: float, unit: str = "") -> str:
    if not math.isfinite(mean):
        return "NaN"
    factor, prefix = next(((factor, prefix) for factor, prefix in PREFIXES if abs(mean) >= 0.9995 * factor), (1.0, ""))
    mean, sd = mean / factor, sd / factor
    suffix = f" {prefix}{unit}" if prefix or unit else ""
    decimals = max(0, 2 - math.floor(math.log10(abs(mean)))) if mean else 2
    if sd < 0.5 * 10.0**-decimals:  # no deviation that these digits could show
        return _digits(mean) + suffix
    if decimals > 5:
        return f"{mean:.2e} ± {sd:.0e}{suffix}"
    return f"{mean:.{decimals}f} ± {sd:.{decimals}f}{suffix}"


def _digits(value: float) -> str:
    if value == round(value) and abs(value) < 1000:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"
