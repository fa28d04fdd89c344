"""`apiece reproduce`: run the cells of a card that have no line yet, and write its page after each."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from apiece.config.settings import Config
from apiece.config.tables import from_table
from apiece.engine.clients import NotFinite
from apiece.errors import UserError, going_on, nearest
from apiece.experiment.identity import digest
from apiece.reproduce import find, ledger
from apiece.reproduce.card import Card
from apiece.reproduce.page import write_index, write_page
from apiece.reproduce.table import Line
from apiece.system.provenance import versions

ROUNDING = 1e-3  # the largest relative difference that another build may make


class Place(NamedTuple):
    """Where cells are run, which changes no number by more than rounding: the device, data and folders."""

    out: Path
    runs: Path
    device: str = "cpu"
    data_dir: str | None = None
    workers: int = 0

    def settings(self) -> dict[str, Any]:
        """As settings of a run."""
        return {"device": self.device, "data_dir": self.data_dir, "workers": self.workers}


class Asked(NamedTuple):
    """One run: of a cell with a seed, or of a search for one of its settings."""

    scale: str
    cell: tuple[str, str]
    seed: int
    settings: dict[str, Any]


def reproduce(name: str, scale: str, place: Place, seeds: Sequence[int] = (), only: str = "", say: Any = print) -> Path:
    """Run the cells of a card that have no result yet, all of one seed before the next seed, and return its page.

    `only`: names of rows and columns, with commas between them; without one of either kind, all of it. Raises UserError
    for a card, scale, row or column that does not exist, and, after all other columns, for those that cannot be run.
    """
    card = find.card(name)
    file = find.file(name, place.out, ".jsonl")
    cells = chosen(card, scale, only)
    asked = [(seed, cell) for seed in seeds or card.scale(scale).seeds for cell in cells]
    refused: dict[str, str] = {}  # by column: why none of its cells can be run, as where its data are not at hand
    for number, (seed, cell) in enumerate(asked, 1):
        while cell[1] not in refused and (what := _left(card, file, scale, cell, seed)) is not None:
            say(f"{name}, cell {number} of {len(asked)}: {', '.join(cell)}, seed {seed}{_searched(card, scale, what)}")
            with going_on("the same command continues it"):
                try:
                    ledger.append(file, run_cell(name, card, what, place))
                except UserError as error:
                    refused[cell[1]] = str(error).rstrip(".")
            write_page(name, place.out)
    write_index(place.out)
    if refused:
        raise UserError("; ".join(f"column {column} was left out: {why}" for column, why in refused.items()) + ".")
    return write_page(name, place.out)


def _searched(card: Card, scale: str, what: Asked) -> str:
    """Which value of a search is tried; "" for a cell of its own."""
    search = card.scale(scale).search
    return "" if search is None or what.scale == scale else f", {search.setting}={what.settings[search.setting]}"


def _left(card: Card, file: Path, scale: str, cell: tuple[str, str], seed: int) -> Asked | None:
    """What has to be run next for a cell with a seed: a value of the search, the cell, or nothing."""
    lines = ledger.read(file)
    settings, own = ledger.wanted(card, lines, scale, *cell)
    if not own:
        search = card.scale(scale).search
        assert search is not None
        return Asked(ledger.searching(scale), cell, search.seed, settings)
    done = {(x.scale, (x.row, x.column), x.seed) for x in lines if ledger.valid(card, lines, x)}
    return None if (scale, cell, seed) in done else Asked(scale, cell, seed, settings)


def run_cell(name: str, card: Card, asked: Asked, place: Place) -> Line:
    """Run one cell with one seed in a folder of its own, where a run that was stopped goes on. A run that becomes
    non-finite has no values but the reason.
    """
    scale, cell, seed, settings = asked
    named = {key: value for key, value in settings.items() if key in Config.__dataclass_fields__}
    made = digest(from_table(named, name))[:8]
    folder = place.runs / name / scale / f"{quote(', '.join(cell), safe='()[]+=, ')}-{made}" / f"seed-{seed}"
    begun = time.perf_counter()
    try:
        values = card.work(settings | place.settings() | {"seed": seed}, folder)
    except NotFinite as error:
        values = {"failed": str(error)}
    return Line(
        scale, *cell, seed, settings, values, round(time.perf_counter() - begun, 1), ledger.provenance(place.device)
    )


def chosen(card: Card, scale: str, only: str) -> list[tuple[str, str]]:
    """The cells whose row and column `only` names."""
    rows, columns = card.places(scale)
    known = {_plain(name): name for name in (*rows, *columns)}
    named = set(_names(only, known))
    of_rows, of_columns = named & set(rows) or set(rows), named & set(columns) or set(columns)
    return [(row, column) for row, column in card.cells(scale) if row in of_rows and column in of_columns]


def _names(only: str, known: Mapping[str, str]) -> Iterator[str]:
    """The names in a text with commas between them; a name may have commas of its own, and the longest is taken."""
    words = re.split(r",(?![^()]*\))", only)
    while words:
        lengths = range(len(words), 0, -1)
        length = next((n for n in lengths if _plain(",".join(words[:n])) in known), 0)
        if not length and (word := words[0].strip()):
            raise UserError(f"--only {only!r}: no row or column is {word!r}; {nearest(word, known.values())}")
        if length:
            yield known[_plain(",".join(words[:length]))]
        words = words[length or 1 :]


def verify(name: str, number: int, place: Place) -> str:
    """Run one line of a card again, in a folder of its own, and say how far the values differ.

    With the same versions on the same kind of machine every value has to be the same, bit for bit; otherwise within
    rounding. Numbers that are timed are left out. Raises UserError if there is no such line, or if a value differs.
    """
    card, file = find.card(name), find.file(name, place.out, ".jsonl")
    lines = ledger.read(file)
    if not 1 <= number <= len(lines):
        raise UserError(f"{file} has {len(lines)} lines, and no cell {number}: the page of {name} numbers them.")
    old = lines[number - 1]
    if not ledger.valid(card, lines, old):
        raise UserError(f"cell {number} of {name} has other settings than the card has now: reproduce it first.")
    new = run_cell(name, card, Asked(old.scale, (old.row, old.column), old.seed, dict(old.settings)), place)
    alike = old.made["versions"] == versions()
    differ = dict(_differences(card, old.values, new.values))
    far = {key: value for key, value in differ.items() if value > (0.0 if alike else ROUNDING)}
    told = ", ".join(f"{key} by {value:.1e} of its value" for key, value in differ.items() if value)
    if far:
        raise UserError(f"{name}, cell {number} ({old.row}, {old.column}, seed {old.seed}) differs: {told}.")
    build = "the same build" if alike else "another build"
    return f"{name}, cell {number} ({old.row}, {old.column}, seed {old.seed}) on {build}: " + (
        f"within rounding: {told}" if told else "the same, bit for bit"
    )


def _differences(card: Card, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The largest relative difference of each value that is not timed."""
    import numpy as np

    for key, value in old.items():
        if key in card.numbers and card.numbers[key].timed:
            continue
        if isinstance(value, str):
            yield key, 0.0 if value == new.get(key) else float("inf")
            continue
        one, two = np.array(value, dtype=float), np.array(new.get(key, np.nan), dtype=float)
        if one.shape != two.shape:
            yield key, float("inf")
            continue
        far = np.abs(one - two) / np.maximum(np.abs(one), 1e-12)
        yield key, float(np.where(np.isnan(one) & np.isnan(two), 0.0, np.nan_to_num(far, nan=np.inf)).max(initial=0.0))


def _plain(name: str) -> str:
    return re.sub(r"\s+", "", name).lower()
