"""Whether a folder holds this run or another: the settings that its result depends on, and its data."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from apiece.config.located import divided, located
from apiece.config.settings import Config
from apiece.config.tables import to_table
from apiece.data.catalog import OWN
from apiece.errors import UserError
from apiece.experiment.folders import INIT, SPELLED, content_of, noted, recorded, spelled
from apiece.experiment.result import measures_of
from apiece.language import plugins, schedules
from apiece.language.expression import build
from apiece.report.metrics import from_toml
from apiece.storage.checkpoint_files import done
from apiece.system.files import read_toml

if TYPE_CHECKING:
    from apiece.config.assemble import Experiment
NOT_IDENTITY = {  # settings that change a result by rounding at most
    "out", "seeds", "data_dir", "track", "tensorboard", "workers", "target", "checkpoint_every", "on_bad_client",
    "patience",
}  # fmt: skip


def as_kept(folder: Path, config: Config) -> Config:
    """The configuration, with files named as the run in the folder names them, if there is a run and the files are the
    same: a run's identity depends on the names that it began with.
    """
    config = located(config)
    if not (folder / "run.toml").is_file():
        return config
    there = recorded(folder)
    same = {name: getattr(there, name) for name in ("init", "data", "split")}
    return replace(config, **{k: v for k, v in same.items() if getattr(located(there), k) == getattr(config, k)})


def digest(config: Config, folder: Path | None = None) -> str:
    """Sixteen characters that identify a run: every setting that changes its result by more than rounding, and the
    content of what it starts from (its path, in folders that are older than the copies of that content). A run may get
    another number of rounds; its identity has the number that it began with.
    """
    if folder is not None and (folder / "run.toml").is_file():
        config = replace(config, rounds=first_rounds(folder))
    named = {k: v for k, v in to_table(replace(divided(config), device="cpu")).items() if k not in NOT_IDENTITY}
    table = spelled(named, SPELLED)
    if config.plugin:
        table["plugin"] = plugins.hashes(config.plugin)
    kept = folder is None or not (folder / "run.toml").is_file() or (folder / INIT).is_file()
    if config.init is not None and kept:
        table["init"] = hashlib.sha256(content_of(config.init)).hexdigest()
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:16]


def first_rounds(folder: Path) -> int:
    """The number of rounds that the folder's run began with, whatever it has now."""
    begun = noted(folder).get("rounds", "")
    return int(begun[:9]) if begun.isdecimal() else recorded(folder).rounds


def refuse_another(folder: Path, config: Config) -> None:
    """Raise UserError, naming the settings that differ, if the folder holds a run of another configuration, or a run
    that cannot have this number of rounds.
    """
    if not (folder / "run.toml").is_file():
        return
    there, config = recorded(folder), as_kept(folder, config)
    if digest(there, folder) == digest(config, folder):
        return refuse_rounds(folder, config)
    told = _differing(there, config, "there", "here")
    raise UserError(f"{str(folder)!r} holds a run of another configuration ({told}): take another --out, or remove it.")


def _differing(one: Config, two: Config, first: str, second: str) -> str:
    """The settings that differ, each with both of its values."""
    old, new = to_table(one), to_table(two)
    differ = [k for k in old | new if k not in NOT_IDENTITY and repr(old.get(k)) != repr(new.get(k))]
    return "; ".join(f"{k} is {old.get(k, 'not set')} {first} and {new.get(k, 'not set')} {second}" for k in differ)


def refuse_other_settings(folder: Path, part: Path, config: Config) -> None:
    """Raise UserError if a folder's run.toml, which says this configuration, has other settings than its run of one
    seed began with, in the folder `part`, if that folder's own has, or if the run cannot have this number of rounds.
    """
    refuse_edited(part)
    there = recorded(part)
    same = replace(as_kept(part, config), rounds=there.rounds)
    if digest(there, part) != digest(same, part):
        told = _differing(there, same, f"in {part / 'run.toml'}", "here")
        raise _edited(folder / "run.toml", f" ({told})")
    refuse_rounds(part, config)


def refuse_edited(folder: Path) -> None:
    """Raise UserError if run.toml has other settings than the run began with, as far as the folder tells that: one that
    is older than the copies of what runs start from has another kind of identity.
    """
    config, begun = recorded(folder), noted(folder).get("digest")
    older = config.init is not None and not (folder / INIT).is_file()
    if begun is not None and not older and begun != digest(config, folder):
        raise _edited(folder / "run.toml")


def _edited(file: Path, told: str = "") -> UserError:
    return UserError(
        f"{file} has other settings than its run began with{told}: put the old ones back, or begin another run, "
        f"`apiece run --config {file} --out FOLDER`."
    )


def refuse_rounds(folder: Path, config: Config) -> None:
    """Raise UserError if the folder's run cannot have this number of rounds: it has done more already, or its step
    sizes so far would have been others.
    """
    there, past = recorded(folder).rounds, done(folder)
    if config.rounds < past:
        raise UserError(
            f"the run in {str(folder)!r} has done {past} rounds, and rounds={config.rounds} are fewer: ask for {past} "
            "or more, or begin another with another --out."
        )
    if config.schedule == OWN:
        if there != config.rounds:
            raise UserError(
                f"the run in {str(folder)!r} has a schedule of a program's own, which may depend on the number of "
                f"rounds: keep {there}, or take another --out."
            )
        return
    (schedule,) = build(config.schedule, schedules.NAMED)
    if any(schedule(t, there) != schedule(t, config.rounds) for t in range(past)):
        raise UserError(
            f"schedule={config.schedule!r} depends on the number of rounds: with {config.rounds}, not {there}, the "
            f"{past} rounds that {str(folder)!r} has done would have had other step sizes: take another --out."
        )


def refuse_other_metrics(folder: Path, experiment: Experiment) -> None:
    """Raise UserError if the run in the folder began with other metrics; a folder that names none is believed."""
    table = read_toml(folder / "run.toml")
    there, here = from_toml(table.get("metrics")), measures_of(experiment.federated.setup.task)
    if "metrics" in table and there != here:
        names = (", ".join(measure.name for measure in measures) for measures in (there, here))
        raise UserError(
            "the run in {!r} began with the metrics {}, not {}: give the same, or another --out.".format(
                str(folder), *names
            )
        )


def refuse_other_data(folder: Path, experiment: Experiment) -> None:
    """Raise UserError if the run in the folder began on other data; runs that did not note their data are believed."""
    began = noted(folder).get("data", "")
    if began and began != experiment.fingerprint:
        raise UserError(f"{str(folder)!r} holds a run on other data: give those that it began with, or begin another.")
