"""A comparison: runs in one table beside the reference rows, of which the missing ones are trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from apiece.config.assemble import assemble
from apiece.config.settings import Config
from apiece.config.tables import from_table
from apiece.data.catalog import OWN
from apiece.errors import UserError, going_on
from apiece.experiment import folders, identity
from apiece.experiment.launch import ensure, whole
from apiece.experiment.tell import lasting, tell
from apiece.report.for_programs import as_text
from apiece.report.records import Runs
from apiece.report.results import begun, read_runs, unlike
from apiece.report.summary import REFERENCES
from apiece.report.table import for_programs
from apiece.system.ranks import join


def compare(
    paths: list[Path], references: bool, out: Path | None, target: float | None = None, json: bool = False
) -> None:
    """Print runs in one table, or as JSON, and write one report; missing reference rows are trained, or continued,
    first.
    """
    from apiece.report.page import place_of, write_report

    page = None if out is None else place_of(out)  # before the reference rows are trained
    ranks = join()
    paths = ranks.from_first(lambda: begun(paths, target))
    with ranks.together():
        rows = read_runs(paths)
        made = _references(rows, paths[0].parent) if references else {}
    if ranks.leads and (warning := unlike(rows)):
        folders.say(warning)
    left = ranks.from_first(lambda: [folder for folder, config in made.items() if not whole(config, folder)])
    if left:  # the first row's file may hold other data now
        with ranks.together():
            identity.refuse_other_data(rows[0].runs[0].path, assemble(next(iter(made.values()))))
    if left and ranks.leads:
        folders.say(_announced(rows[0], left, made[left[0]].rounds))
    for folder in left:
        with going_on(f"`apiece resume {folder}`, or the same comparison again, continues it"):
            ensure(made[folder], folder, progress=not json)
    paths = [*paths, *made]
    if not ranks.leads:
        return
    page = page or paths[0].parent / "report.html"
    if json:
        rows = for_programs(paths, target)
        print(as_text({"rows": rows, "report": str(write_report(paths, page, target))}))
    else:
        tell(paths, target, write_report(paths, page, target))


def _references(rows: list[Runs], beside: Path) -> dict[Path, Config]:
    """The folder and configuration of each missing reference run, with the settings of the first row's runs."""
    found, present = {}, {str(row.config.get("algorithm")) for row in rows}
    for name in REFERENCES:
        for run in rows[0].runs if name not in present else ():
            identity.refuse_edited(run.path)
            named = {"algorithm": name, "plugin": ()}
            given = folders.with_own_init(run.path, from_table(run.config | named, str(run.path), saved=True))
            if own := next((what for what in ("data", "model") if getattr(given, what) == OWN), None):
                raise UserError(
                    f"{run.path}: its {own} came from a program or from nodes, so that no reference rows can be made "
                    "here: add --no-references."
                )
            config = replace(given, out=None, seeds=(), absent=0.0, track="none", tensorboard=False)
            found[beside / f"{name}-{identity.digest(config)}"] = config
    return found


def _announced(first: Runs, left: list[Path], rounds: int) -> str:
    """What will be trained, in which folders, and for how long, estimated from the first row's seconds per round."""
    a_round = first.over(lambda run: run.median("seconds"))
    seconds = len(left) * rounds * a_round.mean if a_round is not None else 0.0
    return (
        f"reference rows are trained first, {rounds} rounds each, about {lasting(seconds)} of training in all, into "
        f"{', '.join(map(str, left))}; --no-references leaves them out."
    )
