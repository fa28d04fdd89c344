"""What is bold on a terminal has a star in a pipe or a file, where nothing is bold."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.measure import Measurement
    from rich.text import Text


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


class About(NamedTuple):
    """A sentence that says what is bold."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        yield Text(self.text if console.is_terminal else self.text.replace("is bold", "has a star"))
