"""The commands on runs that exist: `apiece compare | report | watch | figure | export | personalize`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from apiece.commands.arguments import Folder, Folders, Json, Trusted
from apiece.config.settings import Config, check


@dataclass(frozen=True)
class Compare:
    """Compare runs in a table, with the reference rows `centralized` and `local`, and write a report."""

    folders: Positional[Folders]
    references: bool = True
    """Make the reference rows where no run is one: pooled data with equal work, and no federation."""
    out: str | None = None
    """Where the report goes (default: report.html beside the first run)."""
    target: float | None = None
    """A global value of the first metric: the table says after how many rounds, bytes and seconds it was reached."""
    json: Json = False

    def __call__(self) -> None:
        from apiece.experiment.references import compare

        check(Config(target=self.target))
        out, folders = Path(self.out) if self.out else None, [Path(folder) for folder in self.folders]
        compare(folders, self.references, out, self.target, self.json)


@dataclass(frozen=True)
class Report:
    """Write one HTML page for one run or several."""

    folders: Positional[Folders]
    out: str = "report.html"
    """The page."""
    target: float | None = None
    """A global value of the first metric: the page says after how many rounds, bytes and seconds it was reached."""

    def __call__(self) -> None:
        from apiece.report.page import write_report
        from apiece.report.results import begun

        check(Config(target=self.target))
        print(write_report(begun(self.folders, self.target), Path(self.out), self.target))


@dataclass(frozen=True)
class Figure:
    """Draw one number of runs for a paper: a line for each algorithm, with the mean and the spread over seeds."""

    folders: Positional[Folders]
    out: str
    """The file to write: .pdf, .svg or .png."""
    x: Literal["rounds", "bytes", "seconds"] = "rounds"
    """Bytes are those sent up and down until then; seconds are those of training until then."""
    y: str = "global"
    """A name that `apiece grid --metric` takes, such as personal, or a key of metrics.jsonl, such as train_loss."""
    style: Literal["screen", "print"] = "screen"
    """print: as wide as a column, with lines that differ in gray, too."""

    def __call__(self) -> None:
        from apiece.report.paper_figure import write_figure

        print(write_figure(self.folders, self.x, self.y, self.style, Path(self.out)))


@dataclass(frozen=True)
class Watch:
    """Show the report of runs while they go on, in a browser on this machine; Ctrl-C ends it, and the runs go on."""

    folders: Positional[Folders]
    port: int = 8088
    """The port of the page's address (0: any that is free)."""

    def __call__(self) -> None:
        from apiece.report.watch import serve

        serve(self.folders, self.port)


@dataclass(frozen=True)
class Export:
    """Write a trained model as a safetensors file for `load_state_dict`: the global model, or one client's."""

    folder: Positional[Folder]
    out: str
    """The file to write."""
    client: str | None = None
    """A client's name, to export its own model. A line says what that needs beside the file, if anything."""
    plugin: Trusted = ()

    def __call__(self) -> None:
        from apiece.experiment.exporting import export

        export(Path(self.folder), self.client, Path(self.out), self.plugin)
        print(self.out)


@dataclass(frozen=True)
class Personalize:
    """Make a model for a client that a run never saw, by the run's own algorithm, and print what that cost."""

    folder: Positional[Folder]
    data: str
    """The client's samples, like the run's own: an .npz of x_train, y_train, x_test, y_test; a .csv or .parquet with
    the columns of the run's table, of which that of the clients may be missing; a .jsonl of texts; a folder of images.
    """
    out: str
    """The model's file to write: safetensors for `load_state_dict`."""
    steps: int | None = None
    """Local steps after that (default: none; a round's, where nothing else trains the personal parameters)."""
    plugin: Trusted = ()
    json: Json = False

    def __call__(self) -> None:
        from apiece.experiment.personalize import personalize
        from apiece.report.for_programs import as_text

        served = personalize(Path(self.folder), Path(self.data), Path(self.out), self.steps, self.plugin)
        print(as_text(served.for_programs() | {"out": self.out}) if self.json else f"{served}\n{self.out}")
