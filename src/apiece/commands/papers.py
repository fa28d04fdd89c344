"""The commands on the papers' tables and figures: `apiece reproduce | verify`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from apiece.commands.arguments import Json
from apiece.errors import UserError


@dataclass(frozen=True)
class Reproduce:
    """Make the tables and figures of a paper, with the paper's numbers beside ours and its claims judged; without a
    card, list the cards. The same command again continues.
    """

    cards: Positional[Annotated[tuple[str, ...], arg(metavar="CARD")]] = ()
    """Names of cards, such as fedals-table2."""
    scale: Literal["smoke", "cpu", "paper"] = "cpu"
    """smoke: seconds, shows that it runs. cpu: hours on two cores, smaller than the paper's. paper: the paper's own."""
    seeds: tuple[int, ...] = ()
    """The seeds (default: the scale's)."""
    only: str = ""
    """Rows and columns of the table: "scaffold, dirichlet(0.1)"."""
    device: str = "cpu"
    """cpu, cuda or cuda:1."""
    workers: int = 0
    """As with `run`."""
    data_dir: str | None = None
    """As with `run`."""
    out: str = "docs/results"
    """Where lines, tables, figures and pages go, one folder a paper."""
    runs: str = "runs/reproduce"
    """Where run folders go, in which a cell that was stopped continues."""
    json: Json = False

    def __call__(self) -> None:
        from apiece.reproduce import find, running
        from apiece.reproduce.standing import for_programs, listed

        if not self.cards:
            return print(for_programs(Path(self.out)) if self.json else listed(Path(self.out)))
        if self.json:
            raise UserError("--json lists the cards: leave the names of cards out; a card's page is Markdown and CSV.")
        place = running.Place(Path(self.out), Path(self.runs), self.device, self.data_dir, self.workers)
        for card in self.cards:
            find.card(card).scale(self.scale)
        told: dict[str, None] = {}
        for card in self.cards:
            try:
                print(running.reproduce(card, self.scale, place, self.seeds, self.only))
            except UserError as error:
                told[str(error) if len(self.cards) == 1 else f"{card}: {str(error).rstrip('.')}"] = None
        if told:
            raise UserError("; ".join(told))


@dataclass(frozen=True)
class Verify:
    """Run one cell of a card again and compare its values: bit for bit on the same build, otherwise within rounding."""

    card: Positional[Annotated[str, arg(metavar="CARD")]]
    """The card's name, such as fedals-table2."""
    cell: int
    """The cell's number, as the card's page has it."""
    device: str = "cpu"
    """cpu, cuda or cuda:1."""
    data_dir: str | None = None
    """As with `run`."""
    out: str = "docs/results"
    """Where the card's lines are."""

    def __call__(self) -> None:
        from tempfile import TemporaryDirectory

        from apiece.reproduce import running

        with TemporaryDirectory() as folder:
            place = running.Place(Path(self.out), Path(folder), self.device, self.data_dir)
            print(running.verify(self.card, self.cell, place))
