"""A card's tables as CSV and LaTeX."""

from __future__ import annotations

import csv
import io

from apiece.reproduce import ledger
from apiece.reproduce.card import Card
from apiece.reproduce.standing import cell_text, spread_of
from apiece.reproduce.table import Line, Table

LATEX = str.maketrans({"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "±": r"$\pm$", "–": "--", "^": r"\^{}"})


def as_csv(card: Card, lines: list[Line], scales: list[str]) -> str:
    """One row for each number of each cell at each scale, in the paper's units. `failed` counts the seeds that became
    non-finite, which are not among `seeds`.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["scale", "number", "row", "column", "mean", "sd", "seeds", "failed", "paper mean", "paper sd"])
    for scale in scales:
        table = ledger.table(card, lines, scale)
        for key, number in card.numbers.items():
            for row, column in card.cells(scale):
                if (ours := spread_of(table, key, row, column)) is not None:
                    failed, _ = table.failures((row, column))
                    made = (number.factor * ours.mean, number.factor * ours.sd, ours.seeds, failed)
                    paper = card.paper(key, row, column) or ("", "")
                    writer.writerow([scale, number.title, row, column, *made, *paper])
    return text.getvalue()


def as_latex(card: Card, lines: list[Line], scales: list[str]) -> str:
    """One tabular for each number at each scale, with ours and the paper's in each cell."""
    tables = [(scale, ledger.table(card, lines, scale)) for scale in scales]
    return "\n".join(_tabular(card, scale, table, key) for scale, table in tables for key in card.numbers)


def _tabular(card: Card, scale: str, table: Table, key: str) -> str:
    body = [["", *table.columns]]
    body += [[row, *(cell_text(card, table, key, row, column) for column in table.columns)] for row in table.rows]
    head, *rest = [" & ".join(line).translate(LATEX | {ord("&"): "&"}) + r" \\" for line in body]
    begin, end = rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\end{tabular}"
    return "\n".join([f"% {scale}: {card.numbers[key].title}", begin, rf"{head} \hline", *rest, end, ""])
