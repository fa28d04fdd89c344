"""A table of algorithms, every row with every column, as papers have them: `apiece grid`.

A cell is the sum of its row and its column; the column `nothing` is the row alone. Every cell has one run folder per
seed, OUT/CELL/seed-S: a run that has ended is kept, and one that was stopped is continued. A composition that is
impossible, or a run that became non-finite, is a dash with a footnote.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from apiece.config.assemble import assemble, chosen_algorithm, federated_of
from apiece.config.goal import Goal
from apiece.config.settings import Config, check
from apiece.config.tables import flags
from apiece.engine.clients import NotFinite
from apiece.errors import UserError, going_on
from apiece.experiment import folders, identity
from apiece.experiment.launch import ensure, whole
from apiece.experiment.progress import Progress
from apiece.experiment.result import measures_of
from apiece.experiment.tell import remaining
from apiece.language import plugins
from apiece.language.grammar import parse_list
from apiece.report.grid_table import NOTHING, Grid
from apiece.report.metrics import Measure, Number, choices, named
from apiece.report.page import write_report
from apiece.report.records import Runs, Spread, best, measured
from apiece.report.results import read_run, tell_lost
from apiece.report.table import IS_BOLD, VIRTUAL, unbeaten
from apiece.report.text import cell as written
from apiece.system.files import atomic_write
from apiece.system.ranks import join


class Cell(NamedTuple):
    """One composition: what is run, in which folder, and why it cannot be run, if so."""

    algorithm: str
    folder: Path
    problem: str | None = None


def run_grid(config: Config, rows: str, columns: str, metric: str = "global", progress: Progress = False) -> Grid:
    """Run the cells of the table, all cells of one seed before the next seed, and write OUT/grid.md, OUT/grid.json (for
    reports) and OUT/report.html.

    `rows` and `columns` are expressions with commas between them. Raises UserError for settings with which no cell can
    run, and if a cell's folder holds a run of another configuration.
    """
    ranks = join()
    with ranks.together():
        _check(config, metric)
        config = replace(config, plugin=plugins.pinned(config.plugin))
        out, seeds = Path(str(config.out)), config.seeds or (config.seed,)
        names = _names(rows, "rows", config.plugin), _names(columns, "columns", config.plugin, nothing=True)
        cells = _plan(config, *names, out, metric)

        def of(cell: Cell, seed: int) -> tuple[Config, Path]:
            return replace(config, algorithm=cell.algorithm, seed=seed, seeds=()), cell.folder / f"seed-{seed}"

        for seed, where in _each(seeds, cells):
            one, folder = of(cells[where], seed)
            identity.refuse_another(folder, one)
    ahead = sum(not whole(*of(cells[where], seed)) for seed, where in _each(seeds, cells))
    begun, ran = time.monotonic(), 0
    for seed, where in _each(seeds, cells):
        one, folder = of(cells[where], seed)
        kept = whole(one, folder)
        if progress and ranks.leads:
            able = [place for place, cell in cells.items() if cell.problem is None]
            then = ", which has ended" if kept else remaining(time.monotonic() - begun, ran, ahead - ran)
            folders.say(f"cell {able.index(where) + 1} of {len(able)}, seed {seed}: {one.algorithm}{then}")
        ran += not kept
        try:
            with going_on("the same grid again continues it"):
                ensure(one, folder, progress)
        except NotFinite as error:
            cells[where] = cells[where]._replace(problem=f"seed {seed}: {error}")

    def finish() -> Grid:
        done = {
            where: Runs(cell.algorithm, tuple(read_run(of(cell, seed)[1]) for seed in seeds))
            for where, cell in cells.items()
            if cell.problem is None
        }
        for runs in done.values():
            tell_lost(runs.runs)
        made = [str(cells[where].folder.relative_to(out)) for where in done]
        grid = _grid(*names, cells, done, metric)._replace(folders=made)
        asked = ["apiece grid", "--rows", shlex.quote(rows), "--columns", shlex.quote(columns)]
        asked += ["--metric", metric] if metric != "global" else []
        command = " ".join([*asked, flags(config)])
        atomic_write(out / "grid.md", f"{grid.markdown()}\n\n```\n{command}\n```\n".encode())
        grid.keep(out)
        if done:
            write_report([out], out, config.target)
        return grid

    return ranks.from_first(finish)


def _check(config: Config, metric: str) -> None:
    """Raise UserError for settings that no grid can have."""
    check(config)
    if config.algorithm != Config().algorithm:
        raise UserError(f"a grid's algorithms are its rows and columns: leave --algorithm {config.algorithm!r} out.")
    if config.out is None:
        raise UserError("a grid keeps one run folder for each cell and seed: name the folder of them all with --out.")
    if (Path(config.out) / "run.toml").is_file():
        raise UserError(f"{config.out!r} is the folder of a run: take another --out for the grid.")
    if metric.startswith("unseen") and not config.unseen:
        raise UserError(f"metric {metric!r} needs clients that never train: give --unseen.")


def _names(text: str, what: str, plugin: tuple[str, ...], nothing: bool = False) -> list[str]:
    """The expressions of a list, as they are written back; raises UserError for one that names no algorithm."""
    try:
        names = [" + ".join(map(str, terms)) for terms in parse_list(text)]
        for name in names:
            if not (nothing and name == NOTHING):
                chosen_algorithm(name, plugin)
    except UserError as error:
        raise UserError(f"--{what} {text!r}: {error}") from None
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"--{what} {text!r} names {twice[0]!r} twice: keep one of them.")
    return names


def _plan(
    config: Config, rows: list[str], columns: list[str], out: Path, metric: str = "global"
) -> dict[tuple[int, int], Cell]:
    """The cells by row and column, impossible ones with their error; raises UserError if all are impossible, or if runs
    have no such metric.
    """
    usual = assemble(config).federated.setup
    setting, task = usual.setting, usual.task
    assert setting is not None
    named(metric, measures_of(task))
    goal = Goal(task.name, task.loss, task.metrics)
    cells = {}
    for r, row in enumerate(rows):
        for c, column in enumerate(columns):
            text, problem = row if column == NOTHING else f"{row} + {column}", None
            try:
                federated_of(replace(config, algorithm=text), setting, goal)
            except UserError as error:
                problem = str(error)
            cells[r, c] = Cell(text, out / folders.named_after(text), problem)
    if all(cell.problem for cell in cells.values()):
        raise UserError(f"no cell of this grid can be run: {cells[0, 0].problem}")
    return cells


def _each(seeds: tuple[int, ...], cells: dict[tuple[int, int], Cell]) -> Iterator[tuple[int, tuple[int, int]]]:
    """All cells of the first seed, then of the next, without those that have turned out impossible by then."""
    return ((seed, where) for seed in seeds for where in cells if cells[where].problem is None)


def _grid(
    rows: list[str],
    columns: list[str],
    cells: dict[tuple[int, int], Cell],
    done: dict[tuple[int, int], Runs],
    asked: str,
) -> Grid:
    notes, measures = list[str](), measured(done.values())
    metric, personally = named(asked, measures), choices(measures)["personal"]

    def marked(text: str, note: str) -> str:
        if note not in notes:
            notes.append(note)
        return f"{text} [{notes.index(note) + 1}]"

    def told(where: tuple[int, int]) -> tuple[str, Spread | None]:
        """(the text of a cell, the value that it is compared by)."""
        cell, usual = cells[where], _over(done, where, metric)
        if cell.problem is not None:
            return marked("–", f"{cell.algorithm}: {cell.problem}"), None
        if usual is not None and metric.of_server and done[where].virtual:
            return marked(written(usual, metric.unit), f"This model is {VIRTUAL}."), None
        if usual is not None:
            return written(usual, metric.unit), usual
        personal = _over(done, where, personally)
        if asked == "global" and personal is not None:
            note = f"There is no global model: personal {measures[0].title}."
            return marked(written(personal, metric.unit), note), None
        return marked("–", f"{metric.heading} was not measured."), None

    texts, tops, values = [], [], []
    for r in range(len(rows)):
        row = [told((r, c)) for c in range(len(columns))]
        texts.append([text for text, _ in row])
        values.append([value for _, value in row])
        unmatched = best(values[-1], metric.higher)
        tops.append([c in unmatched for c in range(len(columns))])
    seeds = max((len(runs.runs) for runs in done.values()), default=0)
    spread = f"; mean ± standard deviation over {seeds} seeds" if seeds > 1 else ""
    top = unbeaten([Measure("", metric.higher)]) if seeds > 1 else "the highest" if metric.higher else "the lowest"
    bold = f"in each row {top} {IS_BOLD}"
    unit = ", in percent" if metric.unit == "%" else f", in {metric.unit}" if metric.unit else ""
    about = f"{metric.heading}: {metric.caption}{unit}, after the last round{spread}; {bold}."
    return Grid(rows, columns, texts, tops, notes, about, values=values)


def _over(done: dict[tuple[int, int], Runs], where: tuple[int, int], metric: Number) -> Spread | None:
    return done[where].over(lambda run: run.last(metric.key)) if where in done else None
