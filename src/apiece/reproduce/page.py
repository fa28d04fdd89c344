"""A card's page, with its tables and figures, and the index of all cards."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from apiece.errors import UserError
from apiece.report.drawing import style
from apiece.report.text import markdown
from apiece.reproduce import find, ledger
from apiece.reproduce.card import SCALES, Card, Number
from apiece.reproduce.exports import as_csv, as_latex
from apiece.reproduce.standing import Standing, cell_text, listing, spread_of, standing
from apiece.reproduce.table import Line, OutOfReach, Table
from apiece.system.files import atomic_write

BEGIN, END = "<!-- cards -->", "<!-- end of cards -->"


def write_page(name: str, out: Path) -> Path:
    """Write the card's page, tables and figures from its lines alone, and return the page's path."""
    card, lines = find.card(name), ledger.read(find.file(name, out, ".jsonl"))
    scales = [scale for scale in SCALES if scale in card.scales and ledger.table(card, lines, scale).lines]
    shown = [scale for scale in scales if scale != "smoke"] or scales
    parts = [f"# {card.title}", *_about(name, card)]
    for scale in shown:
        parts += _section(name, card, lines, scale, out)
    notes = find.file(name, out, ".notes.md")
    if notes.is_file():
        parts += ["## What was looked into", notes.read_text(encoding="utf-8").strip()]
    if left := sum(not ledger.valid(card, lines, line) and not ledger.searches(card, line) for line in lines):
        what = "A line of its file has" if left == 1 else f"{left} lines of its file have"
        parts.append(f"{what} other settings than the card has now, and {'is' if left == 1 else 'are'} left out.")
    if shown:
        parts += ["## Provenance", _provenance(card, lines, shown)]
        for ending, write in ((".csv", as_csv), (".tex", as_latex)):
            atomic_write(find.file(name, out, ending), write(card, lines, shown).encode())
    page = find.file(name, out, ".md")
    page.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(page, ("\n\n".join(parts) + "\n").encode())
    return page


def _about(name: str, card: Card) -> list[str]:
    parts = [
        f"`apiece reproduce {name}` makes this page; the card is `src/apiece/papers/{name.replace('-', '/', 1)}.py`."
    ]
    if card.open:
        parts.append("The paper leaves open, and we took:\n\n" + "\n".join(f"- {line}" for line in card.open))
    return parts


def _section(name: str, card: Card, lines: list[Line], scale: str, out: Path) -> list[str]:
    """One scale: what it is, the tables, the claims and the figure."""
    table = ledger.table(card, lines, scale)
    now = standing(card, table, scale)
    seeds = sorted({line.seed for line in table.lines})
    parts = [
        f"## Scale `{scale}`",
        f"{card.scale(scale).about} {now.cells()} are done (seeds {', '.join(map(str, seeds))}), in {now.hours:.2f} "
        f"hours.{_of_data(card, table)}",
    ]
    if failed := [line for line in table.lines if line.failed]:
        parts.append("\n".join(f"- {x.row}, {x.column}, seed {x.seed}: {x.failed.rstrip('.')}." for x in failed))
    if search := card.scale(scale).search:
        found = {(x.row, x.column): f"{x.settings[search.setting]:g}" for x in table.lines}
        chosen = _grid(table, lambda row, column: found.get((row, column), "–"))
        parts.append(f"**{search.setting}**, as the search found it:\n\n{chosen}")
    for key, number in card.numbers.items():
        if any(spread_of(table, key, *cell) for cell in card.cells(scale)):
            parts.append(_table(card, table, key, number))
    if now.verdicts:
        judged = [[claim.name, f"“{claim.sentence}”", verdict] for claim, verdict in now.verdicts]
        held = f"Claims: {now.held} of {now.judged} judged hold." if now.judged else "No claim can be judged yet."
        if now.judged < len(now.verdicts):
            held += " A claim is judged as soon as the cells with all their seeds decide it."
        parts += [held, markdown(["claim", "the paper", "here"], judged)]
    if card.figure is not None and _drawn(name, card, table.finite(), scale, out):
        parts.append(f"![{card.title}]({find.file(name, out, '').name}-{scale}.svg)")
        parts += ["The figure leaves out the cells of which a seed became non-finite."] if failed else []
    return parts


def _of_data(card: Card, table: Table) -> str:
    """Which data the cells have, where they are not their columns'."""
    usual = lambda line: card.columns[line.column].get("data", card.setup.get("data"))
    data = {str(line.settings.get("data")) for line in table.lines if line.settings.get("data") != usual(line)}
    return f" All on {', '.join(sorted(data))}, whatever the columns' names." if data else ""


def _table(card: Card, table: Table, key: str, number: Number) -> str:
    """One number: in each cell ours and, after a slash, the paper's."""
    known = any(card.paper(key, row, column) for row in table.rows for column in table.columns)
    head = f"**{number.title}**: mean ± standard deviation over seeds" + (" / the paper's." if known else ".")
    return f"{head}\n\n{_grid(table, partial(cell_text, card, table, key))}"


def _grid(table: Table, text: Callable[[str, str], str]) -> str:
    """A table in Markdown with the text of each row and column."""
    body = ([row, *(text(row, column) for column in table.columns)] for row in table.rows)
    return markdown(["", *table.columns], body)


def _drawn(name: str, card: Card, table: Table, scale: str, out: Path) -> bool:
    """Draw the figure as SVG and PDF; False if its cells are not there yet."""
    from matplotlib.figure import Figure

    assert card.figure is not None
    with style():
        figure = Figure(layout="constrained", facecolor="white")
        try:
            card.figure(table, figure)
        except OutOfReach:
            return False
        for ending in ("svg", "pdf"):
            figure.savefig(
                find.file(name, out, f"-{scale}.{ending}"),
                metadata={"Date" if ending == "svg" else "CreationDate": None},
            )
    return True


def _provenance(card: Card, lines: list[Line], shown: list[str]) -> str:
    """One row for each line that counts, by its number in the file, which `apiece verify` takes."""
    tables = [ledger.table(card, lines, scale) for scale in shown]
    counted = {id(line.made) for table in tables for line in (*table.lines, *table.searched)}  # values may be added
    rows = []
    for number, x in enumerate(lines, 1):
        made = (x.made["commit"], x.made["versions"]["torch"], x.made["device"], x.made["when"][:10])
        if id(x.made) in counted:
            rows.append([str(number), x.scale, x.row, x.column, str(x.seed), f"{x.seconds:.0f}", *made])
    return markdown(["cell", "scale", "row", "column", "seed", "seconds", "commit", "torch", "device", "day"], rows)


def write_index(out: Path) -> Path:
    """Write the table of all cards into OUT/README.md, between its two marks; a page without them is begun."""
    rows = []
    for name, title, states in listing(out):
        link = f"[`{name}`]({find.file(name, Path(), '.md')})" if states else f"`{name}`"
        for state in [state for state in states if state.scale != "smoke"] or [None]:
            rows.append([link, title, *_state(state)])
    head = ["card", "what", "scale", "cells", "claims held", "farthest from the paper, in spreads", "hours"]
    table = f"{BEGIN}\n{markdown(head, rows)}\n{END}"
    page = out / "README.md"
    text = page.read_text(encoding="utf-8") if page.is_file() else f"# Results\n\n{BEGIN}\n{END}\n"
    text = text if BEGIN in text else f"{text}\n{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    if END not in rest:
        raise UserError(f"{page}: {BEGIN!r} has no {END!r} below it, where the table ends: put it back.")
    atomic_write(page, (before + table + rest.partition(END)[2]).encode())
    return page


def _state(state: Standing | None) -> list[str]:
    if state is None:
        return ["–"] * 5
    far = "–" if state.farthest is None else f"{state.farthest:.1f}"
    held = f"{state.held} of {state.judged}" if state.judged else "–"
    return [state.scale, state.cells(unit=""), held, far, f"{state.hours:.2f}"]
