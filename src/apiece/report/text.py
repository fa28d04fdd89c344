"""Numbers and tables as text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apiece.report.records import Spread

NUMBER = re.compile(r"[*\-–/~ ]*(\d(?!.*[a-z]{4})|$)")  # a cell that begins with a digit and has units, but no words
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def order_of(name: str) -> tuple[str, int]:
    """The key by which names that end with numbers are sorted: seed-2 stands before seed-10."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)


def short(value: float, unit: str = "") -> str:
    """A number in short form, with three digits.

    >>> short(1234567), short(0.01234), short(98_700, "B"), short(12)
    ('1.23 M', '0.0123', '98.7 kB', '12')
    """
    return _with_prefix(value, 0.0, unit)


def percent(value: Spread) -> str:
    """A share in percent: `71.20 ± 0.31`."""
    deviation = f" ± {100 * value.sd:.2f}" if value.sd else ""
    return f"{100 * value.mean:.2f}{deviation}" if math.isfinite(value.mean) else "NaN"


def cell(value: Spread, unit: str) -> str:
    """A value in a table whose heading has the unit."""
    return percent(value) if unit == "%" else number(value)


def with_unit(value: Spread, unit: str) -> str:
    """A value of a metric: `71.20 ± 0.31 %`, `2.31 kg`."""
    return f"{percent(value)} %" if unit == "%" else f"{number(value)} {unit}".rstrip()


def number(value: Spread) -> str:
    """A number in short form: `1.23 ± 0.02 M`."""
    return _with_prefix(value.mean, value.sd)


def amount(value: Spread) -> str:
    """A number of bytes in short form, decimal prefixes: `1.23 MB`."""
    return _with_prefix(value.mean, value.sd, "B")


def told(value: Spread | None, write: Callable[[float], str]) -> str:
    """A mean and its deviation over seeds, as `write` writes numbers; "" if nothing was measured.

    >>> from apiece.report.records import Spread
    >>> told(Spread(1.0, 0.25, 3), lambda v: f"{v:.1f}")
    '1.0 ± 0.2'
    """
    if value is None:
        return ""
    return write(value.mean) + (f" ± {write(value.sd)}" if value.seeds > 1 and value.sd else "")


def markdown(headings: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A table in Markdown; columns of numbers are aligned to the right, columns of words to the left.

    >>> print(markdown(["", "accuracy %"], [["`fedavg`", "80.9 ± 0.5"], ["`local`", "–"]]))
    |  | accuracy % |
    |---|---:|
    | `fedavg` | 80.9 ± 0.5 |
    | `local` | – |
    >>> markdown(["claim"], [["2 points or more"]]).splitlines()[1]
    '|---|'
    """
    table = [[cell.replace("|", "\\|") for cell in line] for line in (headings, *lines)]
    numbers = [all(map(NUMBER.match, column)) for column in zip(*table[1:], strict=True)]
    ruler = "|" + "".join("---:|" if right else "---|" for right in numbers or [False] * len(table[0]))
    head, *body = ["| " + " | ".join(line) + " |" for line in table]
    return "\n".join([head, ruler, *body])


def _with_prefix(mean: float, sd: float, unit: str = "") -> str:
    if not math.isfinite(mean):
        return "NaN"
    factor, prefix = next(((factor, prefix) for factor, prefix in PREFIXES if abs(mean) >= 0.9995 * factor), (1.0, ""))
    mean, sd = mean / factor, sd / factor
    suffix = f" {prefix}{unit}" if prefix or unit else ""
    decimals = max(0, 2 - math.floor(math.log10(abs(mean)))) if mean else 2
    if sd < 0.5 * 10.0**-decimals:  # these digits would show no deviation
        return _digits(mean) + suffix
    if decimals > 5:
        return f"{mean:.2e} ± {sd:.0e}{suffix}"
    return f"{mean:.{decimals}f} ± {sd:.{decimals}f}{suffix}"


def _digits(value: float) -> str:
    if value == round(value) and abs(value) < 1000:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"
