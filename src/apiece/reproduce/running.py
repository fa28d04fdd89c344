"""`apiece reproduce`: run the cells of a card that have no line yet, and write its page after each."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from apiece.data.sources import folders_of
from apiece.engine.clients import NotFinite
from apiece.errors import Busy, UserError, going_on, nearest
from apiece.experiment.folders import ended
from apiece.reproduce import find, ledger
from apiece.reproduce.card import Card
from apiece.reproduce.page import write_index, write_page
from apiece.reproduce.table import Line
from apiece.reproduce.work import held, run_folder, writing
from apiece.system import device
from apiece.system.files import atomic_write, make_folder, unwritable

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
    for a card, scale, row, column, seed, device or folder that cannot be had, and, after all others, for the columns
    that cannot be run and the cells that another process runs.
    """
    card = find.card(name)
    file = find.file(name, place.out, ".jsonl")
    cells = chosen(card, scale, only)
    _refuse(place, seeds, file.parent)
    asked = [(seed, cell) for seed in seeds or card.scale(scale).seeds for cell in cells]
    refused: dict[str, str] = {}  # by column: why none of its cells can be run, as where its data are not at hand
    elsewhere: dict[str, tuple[tuple[str, str], int]] = {}  # cells that another process has, by what is told of them
    for number, (seed, cell) in enumerate(asked, 1):
        here = f"{', '.join(cell)}, seed {seed}"
        while cell[1] not in refused and (what := _left(card, file, scale, cell, seed)) is not None:
            say(f"{name}, cell {number} of {len(asked)}: {here}{_searched(card, scale, what)}")
            with going_on("the same command continues it"):
                try:
                    with held(folder := _folder(name, what, place)):
                        if _left(card, file, scale, cell, seed) == what:  # nobody has written its line meanwhile
                            line = run_cell(card, what, place, folder)
                            with writing(place.out):
                                ledger.append(file, line)
                except Busy:
                    elsewhere[here] = (cell, seed)
                    break
                except UserError as error:
                    refused[cell[1]] = str(error).rstrip(".")
                    break
            with writing(place.out):
                write_page(name, place.out)
    with writing(place.out):
        write_index(place.out)
        page = write_page(name, place.out)
    still = [here for here, where in elsewhere.items() if _left(card, file, scale, *where) is not None]
    told = [f"column {column} was left out: {why}" for column, why in refused.items()]
    told += [f"another process runs {here}: the same command takes its result later" for here in still]
    if told:
        raise UserError("; ".join(told) + ".")
    return page


def _refuse(place: Place, seeds: Sequence[int], folder: Path) -> None:
    """Raise UserError, before hours are spent, where a run could not begin or its result could not be written."""
    device.named(place.device)
    if bad := [seed for seed in seeds if seed < 0]:
        raise UserError(f"--seeds {bad[0]}: a seed is 0 or more.")
    folders_of(place.data_dir)
    make_folder(folder)
    if why := unwritable(folder):
        raise UserError(f"--out {place.out}: cannot be written ({why}): give another folder.")


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


def run_cell(card: Card, asked: Asked, place: Place, folder: Path) -> Line:
    """Run one cell with one seed in its folder, which the caller holds. A run goes on where it was stopped. One that
    becomes non-finite, or whose numbers are not finite, has no values but the reason.
    """
    scale, cell, seed, settings = asked
    with _attempt(folder, place) as attempt:
        try:
            values = card.work(settings | {"seed": seed} | place.settings(), folder)
            if broken := [key for key, value in values.items() if isinstance(value, float) and not isfinite(value)]:
                values = {"failed": f"{broken[0]} is not finite"}
        except NotFinite as error:
            values = {"failed": str(error)}
    return Line(scale, *cell, seed, settings, values, attempt.seconds(), attempt.made)


def _folder(name: str, asked: Asked, place: Place) -> Path:
    """Where a cell's run is, found by its settings: cells of one paper with the same settings have one run, whatever
    their cards.
    """
    return run_folder(place.runs / name.partition("-")[0], asked.settings | {"seed": asked.seed})


class Attempt:
    """One go at a cell. It counts the seconds of all goes at its run, and says who made the run."""

    def __init__(self, made: dict[str, Any], before: float):
        self.made, self.before, self.begun = made, before, time.perf_counter()

    def seconds(self) -> float:
        """Of all goes so far; one that was killed outright has told none."""
        return round(self.before + time.perf_counter() - self.begun, 1)


@contextmanager
def _attempt(folder: Path, place: Place) -> Iterator[Attempt]:
    """A go at a cell, which is written down beside its run folder, so that a line says who made the run: whoever only
    reads a run that has ended made nothing of it.
    """
    file, made = folder.with_suffix(".json"), ledger.provenance(place.device)
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
        told, before = _told(known["made"], made), float(known["seconds"])
        first = known["made"] if ended(folder) else told
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        first, before = made, 0.0
    attempt = Attempt(first, before)
    note = lambda: atomic_write(file, json.dumps({"made": attempt.made, "seconds": attempt.seconds()}).encode())
    note()
    try:
        yield attempt
    finally:
        note()


def _told(first: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Who made a run that `first` began and `now` continues: commits or devices that differ are both named."""
    other = [key for key in ("commit", "device") if first[key].rpartition(" to ")[2] != now[key]]
    return first | {key: f"{first[key].partition(' to ')[0]} to {now[key]}" for key in other}


def chosen(card: Card, scale: str, only: str) -> list[tuple[str, str]]:
    """The cells whose row and column `only` names."""
    rows, columns = card.places(scale)
    known = {_plain(name): name for name in (*rows, *columns)}
    if "," in only and not only.replace(",", "").strip():
        raise UserError(f"--only {only!r} names no row and no column: leave it out for all, or name some.")
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

    From the same commit with the same versions on the same processor or card every value has to be the same, bit for
    bit; otherwise within rounding. Numbers that are timed are left out. Raises UserError if there is no such line, or
    if a value differs.
    """
    card, file = find.card(name), find.file(name, place.out, ".jsonl")
    device.named(place.device)
    lines = ledger.read(file)
    if not 1 <= number <= len(lines):
        raise UserError(
            f"{file} has no cell {number}, but {len(lines)} of them, from 1: the page of {name} numbers them."
            if lines else f"{file} has no cell yet: `apiece reproduce {name}` makes them."
        )
    old = lines[number - 1]
    if not ledger.valid(card, lines, old) and not ledger.searches(card, old):
        raise UserError(f"cell {number} of {name} has other settings than the card has now: reproduce it first.")
    asked = Asked(old.scale, (old.row, old.column), old.seed, dict(old.settings))
    with held(folder := _folder(name, asked, place)):
        new = run_cell(card, asked, place, folder)
    other = [key for key in ("commit", "versions", "device") if old.made.get(key) != new.made[key]]
    differ = dict(_differences(card, old.values, new.values))
    far = {key: value for key, value in differ.items() if value > (ROUNDING if other else 0.0)}
    told = ", ".join(f"{key} by {value:.1e} of its value" for key, value in differ.items() if value)
    what, where = f"{name}, cell {number} ({old.row}, {old.column}, seed {old.seed})", _where(other)
    if far:
        made = f"the page was made from {old.made['commit'] or 'an unknown commit'}"
        if "device" in other:  # whose sums are rounded otherwise
            made = f"training amplifies rounding, and the cell was run on {old.made['device']}"
        raise UserError(
            f"{what} differs, {where}, by more than {'rounding' if other else 'nothing'}: {told}; {made}, so verify it "
            f"there, or reproduce the cell."
        )
    return f"{what} {where}: " + (f"within rounding: {told}" if told else "the same, bit for bit")


def _where(other: Sequence[str]) -> str:
    """How the build that made a line differs from this one."""
    named = {"commit": "from another commit", "versions": "with other versions", "device": "on another device"}
    return ", ".join(named[key] for key in other) if other else "on the same build"


def _differences(card: Card, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The largest relative difference of each value that is not timed; infinite for one that either lacks."""
    import numpy as np

    for key in {**old, **new}:
        if key in card.numbers and card.numbers[key].timed:
            continue
        if key not in old or key not in new or isinstance(old[key], str):
            yield key, 0.0 if old.get(key) == new.get(key) else float("inf")
            continue
        one, two = np.array(old[key], dtype=float), np.array(new[key], dtype=float)
        if one.shape != two.shape:
            yield key, float("inf")
            continue
        far = np.abs(one - two) / np.maximum(np.abs(one), 1e-12)
        yield key, float(np.where(np.isnan(one) & np.isnan(two), 0.0, np.nan_to_num(far, nan=np.inf)).max(initial=0.0))


def _plain(name: str) -> str:
    return re.sub(r"\s+", "", name).lower()
