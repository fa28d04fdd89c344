"""A tracker: what it is told of a run, and what it does with it. A tracker knows which rounds it has (`there`), so that
no round is written twice, and the missing ones are written after a stop.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from apiece.errors import UserError, with_extra

Numbers = Mapping[str, float]
Row = Mapping[str, Any]


class About(NamedTuple):
    """What a tracker is told of a run."""

    name: str
    group: str  # the same for runs that differ only in their seed
    settings: Mapping[str, Any]
    folder: Path | None
    first: int  # the round that is done next
    noted: Mapping[str, Any]  # what the tracker noted of this run before


class Opened(Protocol):
    """A tracker's run: `there` are the rounds that it has, `note` finds it again."""

    there: set[int]
    note: dict[str, Any]

    def round(self, number: int, numbers: Numbers) -> None:
        """Write one round."""
        ...

    def end(self, number: int, more: Numbers, clients: Sequence[Row]) -> None:
        """Write what the last round has beside, and each client's metrics."""
        ...

    def close(self, ended: bool) -> None:
        """Let go of it; the run has ended, or was stopped."""
        ...


class Tracker(Protocol):
    """One kind of tracker with its arguments."""

    def check(self, folder: Path | None) -> None:
        """Raise UserError if it cannot be used, before the run begins."""
        ...

    def open(self, about: About) -> Opened: ...


def imported(package: str, title: str, extra: str) -> Any:
    """The package; UserError with the line that installs it if it is missing."""
    try:
        return import_module(package)
    except ImportError:
        raise UserError(f"{title} is not installed: {with_extra(extra)}, or leave it out of --track.") from None


def refuse_no_folder(name: str, folder: Path | None) -> None:
    """Raise UserError for a tracker whose files need a folder."""
    if folder is None:
        raise UserError(f"track={name} needs out, the folder that its files go to.")


def columns(rows: Iterable[Row]) -> list[str]:
    """The names of all rows, in their order."""
    return list(dict.fromkeys(key for row in rows for key in row))


def table(rows: Sequence[Row]) -> str:
    """Rows as text with commas; a column that some row lacks is empty there."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns(rows))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
