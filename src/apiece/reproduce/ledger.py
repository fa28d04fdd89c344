"""The lines of a card, one for each cell and seed, in a file that grows over days and machines: PAPER/ITEM.jsonl."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from apiece.errors import UserError
from apiece.reproduce.card import Card
from apiece.reproduce.table import Line, Table
from apiece.storage.log import UNREADABLE
from apiece.system.provenance import versions

One = TypeVar("One")


def read(path: Path) -> list[Line]:
    """All lines, in order; a line that was torn by a crash is left out. UserError for a file that is no ledger."""
    return lines_of(path, _line, "cell's result")


def lines_of(path: Path, made: Callable[[Any], One], what: str) -> list[One]:
    """The lines of a file that `append` writes, without a last one that was torn; UserError for one that is none."""
    found, (*texts, last) = list[One](), path.read_bytes().split(b"\n") if path.is_file() else [b""]
    for number, text in enumerate([*texts, last] if _whole(last) else texts, 1):
        try:
            found.append(made(json.loads(text)))
        except UNREADABLE:
            raise UserError(f"{path}: line {number} is no {what}: put the file back, or remove it.") from None
    return found


def _whole(text: bytes) -> bool:
    """Whether the end of a file is a line of JSON, and so was not torn, though no newline follows it."""
    try:
        json.loads(text)
    except UNREADABLE:
        return False
    return True


def _line(given: Any) -> Line:
    """A line of a cell's result; ValueError, TypeError or KeyError for anything else. Its values are finite numbers,
    lists of them, or the reason why there are none.
    """
    line = Line(**given)
    if not all(map(isinstance, line, (str, str, str, int, dict, dict, int | float, dict))):
        raise TypeError
    made = line.made["commit"], line.made["device"], line.made["when"], line.made["versions"]["torch"]
    numbers = [value for key, value in line.values.items() if key != "failed" and not isinstance(value, list)]
    if not all(isinstance(text, str) for text in made) or not all(map(math.isfinite, numbers)):
        raise ValueError
    return line


def append(path: Path, line: Any) -> None:
    """Add a named tuple as a line, and wait until the disk has it. A torn last line is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        file.seek(0)
        before, newline, last = file.read().rpartition(b"\n")
        if _whole(last):
            file.write(b"\n")
        elif last:
            file.truncate(len(before + newline))
        file.write(json.dumps(line._asdict(), sort_keys=True).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def wanted(card: Card, lines: list[Line], scale: str, row: str, column: str) -> tuple[dict[str, Any], bool]:
    """(the settings of the cell's next run, whether they are the cell's own): while the scale searches for a setting,
    they are those of the search.
    """
    settings, search = card.settings(scale, row, column), card.scale(scale).search
    if search is None:
        return settings, True
    known = {
        line.settings[search.setting]: line.values.get(search.number, -math.inf)
        for line in lines
        if (line.scale, line.row, line.column) == (searching(scale), row, column) and searches(card, line)
    }
    value, found = search.go_on(known)
    return settings | {search.setting: value} | ({} if found else dict(search.changes)), found


def searching(scale: str) -> str:
    """What a line of a search has as its scale."""
    return f"{scale} search"


def valid(card: Card, lines: list[Line], line: Line) -> bool:
    """Whether a line is of the card as it is now: a card whose settings were changed runs its cells again."""
    if line.scale not in card.scales or (line.row, line.column) not in card.cells(line.scale):
        return False
    settings, own = wanted(card, lines, line.scale, line.row, line.column)
    return own and _plain(line.settings) == _plain(settings)


def searches(card: Card, line: Line) -> bool:
    """Whether a line is of a search for one of the card's settings, as the card is now."""
    for name, scale in card.scales.items():
        if line.scale == searching(name) and scale.search and (line.row, line.column) in card.cells(name):
            value, search = line.settings.get(scale.search.setting), scale.search
            own = card.settings(name, line.row, line.column) | {search.setting: value} | dict(search.changes)
            return _plain(line.settings) == _plain(own)
    return False


def _plain(settings: Mapping[str, Any]) -> Any:
    """Settings as JSON gives them back, without that which changes no value: how often a run is saved."""
    return {name: value for name, value in json.loads(json.dumps(settings)).items() if name != "checkpoint_every"}


def table(card: Card, lines: list[Line], scale: str) -> Table:
    """The card's table at one scale, of the last line of each cell and seed, and the lines of its search."""
    last = {(x.row, x.column, x.seed): _derived(card, x) for x in lines if x.scale == scale and valid(card, lines, x)}
    tried = tuple(x for x in lines if x.scale == searching(scale) and searches(card, x))
    return Table(tuple(last.values()), *card.places(scale), tried)


def _derived(card: Card, line: Line) -> Line:
    """The line with the values that the card makes of it; one that failed has none to make them of."""
    more = {} if line.failed else {name: make(line) for name, make in card.derived.items()}
    return line._replace(values={**line.values, **more})


def provenance(device: str) -> dict[str, Any]:
    """When, from which commit, with which versions and on which device a line is made."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "versions": versions(),
        "device": device_name(device),
        "cores": os.cpu_count(),
    }


def _commit() -> str:
    """The commit of this clone, with a + if files of the package differ from it; "" outside of a clone."""
    here = Path(__file__).parents[1]
    try:
        asked = [
            ["rev-parse", "--short=10", "HEAD"],
            ["status", "--porcelain", "--untracked-files=no", "--", str(here)],
        ]
        head, changed = (
            subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, check=True).stdout.strip()
            for words in asked
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + ("+" if changed else "")


def device_name(name: str) -> str:
    """The graphics card by name, or the processor by name and the instructions that torch takes there: processors of
    one name may have others, and round otherwise.
    """
    import torch

    if not name.startswith("cpu"):
        return torch.cuda.get_device_name(name)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        found = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        found = platform.processor() or platform.machine()
    return f"{found}, {torch.backends.cpu.get_cpu_capability()}"
