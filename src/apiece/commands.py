"""The commands `apiece run | grid | resume | compare | report | export | personalize | reproduce | verify | ...`.

Importing this module and making a command load neither torch nor numpy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import OmitArgPrefixes, Positional, arg

from apiece.config.names import refuse_unknown, refuse_unknown_cells
from apiece.config.settings import Config, check
from apiece.report.metrics import choices

Folder = Annotated[str, arg(metavar="FOLDER")]
Settings = Annotated[Config, OmitArgPrefixes, arg(name="")]
METRIC = arg(
    help=f"What a cell shows of the first metric: {', '.join(choices())}; personal where there is no global model. Of "
    "another metric: global_f1, personal_f1, ..."
)
Trusted = Annotated[
    tuple[str, ...],
    arg(help="The plug-in files that the run was made with: a file that only its folder names is not executed."),
]


@dataclass(frozen=True)
class Run:
    """Run one algorithm on one federation of clients. With --config FILE.toml the file's settings are the defaults,
    which flags override.
    """

    config: Settings = field(default_factory=Config)

    def check(self) -> None:
        """Raise UserError for what can be refused before anything heavy is loaded."""
        check(self.config)
        refuse_unknown(self.config)

    def __call__(self) -> None:
        from apiece.experiment.launch import run_config

        run_config(self.config, progress=True)


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
    config: Settings = field(default_factory=Config)

    def check(self) -> None:
        """Raise UserError for what can be refused before anything heavy is loaded."""
        check(self.config)
        refuse_unknown_cells(self.config, self.rows, self.columns)

    def __call__(self) -> None:
        from rich.console import Console

        from apiece.experiment.grid import run_grid
        from apiece.system.ranks import join

        grid, console = run_grid(self.config, self.rows, self.columns, self.metric, progress=True), Console()
        if not join().leads:
            return
        console.print(grid.table())
        for line in grid.said():
            console.print(line, markup=False, soft_wrap=True)
        for name in ("grid.md", "report.html"):
            if (path := Path(str(self.config.out)) / name).is_file():
                console.print(str(path), markup=False, soft_wrap=True)


@dataclass(frozen=True)
class Resume:
    """Continue a run that was stopped from its newest whole checkpoint; with --rounds, also a run that has ended."""

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

    def __call__(self) -> None:
        from apiece.experiment.launch import resume

        resume(Path(self.folder), True, self.device, self.on_bad_client, self.plugin, self.rounds, self.patience)


@dataclass(frozen=True)
class Compare:
    """Compare runs in a table, with the reference rows `centralized` and `local`, and write a report."""

    folders: Positional[tuple[str, ...]]
    references: bool = True
    """Make the reference rows where no run is one: pooled data with equal work, and no federation."""
    out: str | None = None
    """Where the report goes (default: report.html beside the first run)."""
    target: float | None = None
    """A global value of the first metric: the table says after how many rounds, bytes and seconds it was reached."""

    def __call__(self) -> None:
        from apiece.experiment.references import compare

        check(Config(target=self.target))
        compare([Path(f) for f in self.folders], self.references, Path(self.out) if self.out else None, self.target)


@dataclass(frozen=True)
class Report:
    """Write one HTML page for one run or several."""

    folders: Positional[tuple[str, ...]]
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
class Export:
    """Write a trained model as a safetensors file for `load_state_dict`: the global model, or one client's."""

    folder: Positional[Folder]
    out: str
    """The file to write."""
    client: str | None = None
    """A client's name, to export its own model."""
    plugin: Trusted = ()

    def __call__(self) -> None:
        from apiece.experiment.launch import export

        export(Path(self.folder), self.client, Path(self.out), self.plugin)
        print(self.out)


@dataclass(frozen=True)
class Personalize:
    """Make a model for a client that a run never saw, by the run's own algorithm, and print what that cost."""

    run: Folder
    """The run's folder."""
    data: str
    """The client's samples, like the run's own: an .npz of x_train, y_train, x_test, y_test, or a .jsonl of texts."""
    out: str
    """The model's file to write: safetensors for `load_state_dict`."""
    steps: int | None = None
    """Local steps after that (default: none; a round's, where nothing else trains the personal parameters)."""
    plugin: Trusted = ()

    def __call__(self) -> None:
        from apiece.experiment.personalize import personalize

        print(personalize(Path(self.run), Path(self.data), Path(self.out), self.steps, self.plugin))
        print(self.out)


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

    def __call__(self) -> None:
        from apiece.reproduce import running
        from apiece.reproduce.standing import listed

        if not self.cards:
            return print(listed(Path(self.out)))
        place = running.Place(Path(self.out), Path(self.runs), self.device, self.data_dir, self.workers)
        for card in self.cards:
            print(running.reproduce(card, self.scale, place, self.seeds, self.only))


@dataclass(frozen=True)
class Verify:
    """Run one cell of a card again and compare its values: bit for bit on the same build, otherwise within rounding."""

    card: Positional[Annotated[str, arg(metavar="CARD")]]
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


BY_RANKS = (Run, Grid, Resume, Compare)  # executed by all ranks together; the first alone executes the rest

COMMANDS = {
    "run": Run,
    "grid": Grid,
    "resume": Resume,
    "compare": Compare,
    "report": Report,
    "export": Export,
    "personalize": Personalize,
    "reproduce": Reproduce,
    "verify": Verify,
    "algorithms": Algorithms,
    "data": Data,
}
