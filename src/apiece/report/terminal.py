"""What is bold on a terminal has a star in a pipe or a file, where nothing is bold; a wide table becomes several."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

NAMED = 24  # a longer name is folded before a table is divided
BETWEEN, EDGES = 3, 2  # what a table needs between two columns, and at both of its sides together


class Best(NamedTuple):
    """A cell that no other exceeds."""

    text: str

    def told(self, console: Console) -> Text:
        """The cell as this console can show it."""
        from rich.text import Text

        return Text(self.text, "bold", no_wrap=True) if console.is_terminal else Text(f"* {self.text}", no_wrap=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.told(console)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.measure import Measurement

        return Measurement.get(console, options, self.told(console))


class Fitting(NamedTuple):
    """A table with a name in each row, divided by its columns where it is too wide: no number is ever cut.

    `widths`: of its columns, and `named`: of the longest name. `table` makes the table of the columns of these places.
    """

    named: int
    widths: list[int]
    table: Callable[[list[int]], Table]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room, parts = options.max_width - EDGES - min(self.named, NAMED), [list[int]()]
        for place in range(len(self.widths)):
            if parts[-1] and sum(self.widths[k] + BETWEEN for k in [*parts[-1], place]) > room:
                parts.append([])
            parts[-1].append(place)
        yield from map(self.table, parts)


class About(NamedTuple):
    """A sentence that says what is bold."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        yield Text(self.text if console.is_terminal else self.text.replace("is bold", "has a star"))
