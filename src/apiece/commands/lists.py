"""The commands that list what there is: `apiece algorithms | data`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Algorithms:
    """List the algorithms, one line each with its reference."""

    json: bool = False
    """As JSON, with `paper_defaults`: the settings of a run (weighting, optimizer, ...) of the algorithm's paper.
    """
    plugin: tuple[str, ...] = ()
    """Python files of your own whose public functions are algorithms too (docs/adding-a-piece.md)."""

    def __call__(self) -> None:
        from apiece.language.listing import algorithms, as_text

        print(as_text(algorithms(self.plugin), self.json))


@dataclass(frozen=True)
class Data:
    """List the data sets and the splits, one line each with its reference."""

    json: bool = False
    """As JSON."""

    def __call__(self) -> None:
        from apiece.language.listing import as_text, data

        print(as_text(data(), self.json))
