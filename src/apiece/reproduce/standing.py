"""How far a card is: cells done, claims held, and the distance from the paper's numbers."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from apiece.report.for_programs import as_text
from apiece.report.records import Spread
from apiece.reproduce import find, ledger
from apiece.reproduce.card import SCALES, Card, Claim
from apiece.reproduce.table import OutOfReach, Table
from apiece.reproduce.work import run_folder

HELD, REFUTED, OPEN = "held", "refuted", "not judged"


class Standing(NamedTuple):
    """How far a card is at one scale."""

    scale: str
    done: int  # cells with one of the scale's seeds
    asked: int
    others: int  # cells with other seeds
    verdicts: list[tuple[Claim, str]]
    farthest: float | None  # the largest difference from the paper's numbers, in units of spread, but for seconds
    hours: float

    def cells(self, unit: str = " cells") -> str:
        """How many are done, as text."""
        return f"{self.done} of {self.asked}{unit}" + (f" and {self.others} with other seeds" if self.others else "")

    @property
    def claims(self) -> str:
        """How many hold, as text that goes on after the cells."""
        return f", {self.held} of {self.judged} claims hold" if self.judged else ""

    @property
    def held(self) -> int:
        return sum(verdict == HELD for _, verdict in self.verdicts)

    @property
    def judged(self) -> int:
        return sum(verdict != OPEN for _, verdict in self.verdicts)


def standing(card: Card, table: Table, scale: str) -> Standing:
    """The cells that are done, and of those with all their seeds the claims that are held and the distance from the
    paper.
    """
    seeds = card.scale(scale).seeds
    asked, whole = len(card.cells(scale)) * len(seeds), table.whole(seeds)
    verdicts = [(claim, verdict_of(claim, whole)) for claim in card.claims if scale in claim.scales]
    compared = [name for name, number in card.numbers.items() if not number.timed]  # seconds are of another machine
    far = [x for x in (_distance(card, whole, name, r, c) for name in compared for r, c in card.cells(scale)) if x]
    done = sum(line.seed in seeds for line in table.lines)
    seconds: dict[Path, float] = {}  # by run, as cells with the same settings have one
    for line in (*table.lines, *table.searched):
        run = run_folder(Path(), {**line.settings, "seed": line.seed})
        seconds[run] = max(line.seconds, seconds.get(run, 0.0))
    hours = sum(seconds.values()) / 3600
    return Standing(scale, done, asked, len(table.lines) - done, verdicts, max(far, default=None), hours)


def verdict_of(claim: Claim, table: Table) -> str:
    """Whether the claim holds of the table; not judged if it speaks of a cell that is not in it."""
    try:
        return HELD if claim.holds(table) else REFUTED
    except OutOfReach:
        return OPEN


def spread_of(table: Table, name: str, row: str, column: str) -> Spread | None:
    """A number of a cell over seeds; None if it was not measured."""
    try:
        return table.spread((row, column), name)
    except OutOfReach:
        return None


def _distance(card: Card, table: Table, name: str, row: str, column: str) -> float | None:
    """|ours - the paper's| in units of the larger standard deviation; None where either has none."""
    ours, paper = spread_of(table, name, row, column), card.paper(name, row, column)
    if ours is None or paper is None:
        return None
    unit = max(card.numbers[name].factor * ours.sd, paper[1] or 0.0)
    return abs(card.numbers[name].factor * ours.mean - paper[0]) / unit if unit else None


def cell_text(card: Card, table: Table, key: str, row: str, column: str) -> str:
    """A number of a cell as text: ours, and after a slash the paper's."""
    ours, paper = spread_of(table, key, row, column), card.paper(key, row, column)
    digits, factor = card.numbers[key].digits, card.numbers[key].factor
    text = "–" if ours is None else _number(factor * ours.mean, factor * ours.sd if ours.seeds > 1 else None, digits)
    failed, seeds = table.failures((row, column))
    if failed:
        text = "non-finite" if failed == seeds else f"{text} ({failed} of {seeds} seeds non-finite)"
    elif ours is not None and ours.seeds < seeds:
        text = f"{text} ({ours.seeds} of {seeds} seeds)"
    return f"{text} / {_number(*paper, digits)}" if paper is not None else text


def _number(mean: float, sd: float | None, digits: int) -> str:
    return f"{mean:.{digits}f}" + (f" ± {sd:.{digits}f}" if sd is not None else "")


def listing(out: Path) -> list[tuple[str, str, list[Standing]]]:
    """Of each card its name, its title, and how far it is at each scale at which something was run."""
    found = []
    for name in find.names():
        card, lines = find.card(name), ledger.read(find.file(name, out, ".jsonl"))
        tables = {scale: ledger.table(card, lines, scale) for scale in SCALES if scale in card.scales}
        states = [standing(card, table, scale) for scale, table in tables.items()]
        found.append((name, card.title, [state for state in states if state.done + state.others]))
    return found


def for_programs(out: Path) -> str:
    """The same as JSON: of each scale the cells done and asked for, the claims judged and held, and the hours."""
    what = ("scale", "done", "asked", "held", "judged", "farthest", "hours")
    return as_text(
        [
            {"name": name, "title": title, "scales": [{key: getattr(now, key) for key in what} for now in states]}
            for name, title, states in listing(out)
        ]
    )


def listed(out: Path) -> str:
    """All cards, one line for each and for each scale at which something was run."""
    lines = []
    for name, title, states in listing(out):
        lines.append(f"{name:<24} {title}")
        for now in states:
            lines.append(f"{'':<24}   {now.scale}: {now.cells()}{now.claims}, {now.hours:.2f} hours")
    return "\n".join(lines)
