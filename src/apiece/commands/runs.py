"""The commands that train: `apiece run | grid | resume`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import OmitArgPrefixes, Positional, arg

from apiece.commands.arguments import Folder, Json, LogFormat, Quiet, Trusted, progress
from apiece.config.names import refuse_unknown, refuse_unknown_cells
from apiece.config.settings import Config, check
from apiece.report.metrics import choices

Settings = Annotated[Config, OmitArgPrefixes, arg(name="")]
METRIC = arg(
    help=f"Which number of the first metric counts: {', '.join(choices())}; personal where there is no global model. "
    "Of another metric: global_f1, personal_f1, ..."
)


@dataclass(frozen=True)
class Run:
    """Run one algorithm on one federation of clients. With --config FILE.toml the file's settings are the defaults,
    which flags override.
    """

    quiet: Quiet = False
    log_format: LogFormat = "text"
    config: Settings = field(default_factory=Config)

    def check(self) -> None:
        """Raise UserError for what can be refused before anything heavy is loaded."""
        progress(self.quiet, self.log_format)
        check(self.config)
        refuse_unknown(self.config)

    def __call__(self) -> None:
        from apiece.experiment.launch import run_config

        run_config(self.config, progress=progress(self.quiet, self.log_format))


@dataclass(frozen=True)
class Grid:
    """Run every row with every column, and print the table: a cell runs the sum of the two, and the column `nothing` is
    the row alone. The settings are those of `run` except --algorithm; the same command again continues a grid.
    """

    rows: str
    """Algorithms, separated by commas: "fedavg, scaffold, feddyn"."""
    columns: str
    """What is added to each row: "nothing, relaxed_init(0.1), fedcog()"."""
    metric: Annotated[str, METRIC] = "global"
    json: Json = False
    quiet: Quiet = False
    log_format: LogFormat = "text"
    config: Settings = field(default_factory=Config)

    def check(self) -> None:
        """Raise UserError for what can be refused before anything heavy is loaded."""
        progress(self.quiet, self.log_format, self.json)
        check(self.config)
        refuse_unknown_cells(self.config, self.rows, self.columns)

    def __call__(self) -> None:
        from rich.console import Console

        from apiece.experiment.grid import run_grid
        from apiece.report.for_programs import as_text
        from apiece.report.terminal import About
        from apiece.system.ranks import join

        show = progress(self.quiet, self.log_format, self.json)
        grid, console = run_grid(self.config, self.rows, self.columns, self.metric, progress=show), Console()
        if not join().leads or (show is not True and not self.json):
            return
        if self.json:
            return print(as_text(grid.for_programs()))
        console.print(grid.table())
        for line in grid.said():
            console.print(About(line), soft_wrap=True)
        for name in ("grid.md", "report.html"):
            if (path := Path(str(self.config.out)) / name).is_file():
                console.print(str(path), markup=False, soft_wrap=True)


@dataclass(frozen=True)
class Resume:
    """Continue a run that was stopped from its newest whole checkpoint; with --rounds, also a run that has ended. Its
    settings are those in its folder: changes to the file that `apiece run --config` read do not count.
    """

    folder: Positional[Folder]
    rounds: int | None = None
    """Another number of rounds, no fewer than are done: the result is the run that had them from the start."""
    device: str | None = None
    """Another device than the run's: cpu, cuda. The result differs only by rounding."""
    on_bad_client: Literal["stop", "skip"] | None = None
    """What to do from here on when a client becomes non-finite, if not what the run was begun with."""
    plugin: Trusted = ()
    patience: float | None = None
    """The seconds of silence that are allowed from here on, as with `run`."""
    quiet: Quiet = False
    log_format: LogFormat = "text"

    def __call__(self) -> None:
        from apiece.experiment.launch import resume

        show = progress(self.quiet, self.log_format)
        resume(Path(self.folder), show, self.device, self.on_bad_client, self.plugin, self.rounds, self.patience)
