"""A run's folder: run.toml, metrics.jsonl, split.npz, checkpoints, and at the end clients.json, model.safetensors,
report.html.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apiece.config.settings import Config, from_toml, located, read_toml, to_table
from apiece.errors import UserError
from apiece.language import plugins, schedules
from apiece.language.expression import build
from apiece.measure import observed
from apiece.storage import checkpoint
from apiece.storage.checkpoint_files import done
from apiece.storage.log import without_infinities
from apiece.system import files

if TYPE_CHECKING:
    from apiece.config.assemble import Experiment
    from apiece.experiment.run import Result

NOT_IDENTITY = {"out", "seeds", "data_dir", "tensorboard", "workers", "target", "checkpoint_every", "on_bad_client"}
NOT_IDENTITY |= {"patience"}
PACKAGES = ("apiece", "torch", "numpy", "scikit-learn", "safetensors")


LISTED = 100_000  # clients up to which each is measured at the end, and has its place in clients.json
AT_END = ("model.safetensors", "clients.json", observed.NAME)  # what a run leaves at its end, but for its page
INIT = "init.safetensors"  # a run's own copy of what it started from
UNDECIDED = {"run.toml.tmp", INIT, f"{INIT}.tmp"}  # what a start may leave before its run.toml


def as_kept(folder: Path, config: Config) -> Config:
    """The configuration in the words of the run that lies in the folder, if one does, where both name the same file:
    a run's identity depends on the words of an earlier day.
    """
    config = located(config)
    if not (folder / "run.toml").is_file():
        return config
    there = recorded(folder)
    same = {name: getattr(there, name) for name in ("init", "data", "split")}
    return replace(config, **{k: v for k, v in same.items() if getattr(located(there), k) == getattr(config, k)})


def digest(config: Config, folder: Path | None = None) -> str:
    """Sixteen characters for what a run is: every setting that its result depends on by more than rounding, and the
    content of what it starts from. A folder from before that was kept has its path there. The run in a folder may get
    another number of rounds; in its identity is the one that it began with.
    """
    if folder is not None and (folder / "run.toml").is_file():
        begun = noted(folder).get("rounds", "")
        config = replace(config, rounds=int(begun[:9]) if begun.isdecimal() else recorded(folder).rounds)
    table = {k: v for k, v in to_table(replace(config, device="cpu")).items() if k not in NOT_IDENTITY}
    if config.plugin:
        table["plugin"] = plugins.hashes(config.plugin)
    kept = folder is None or not (folder / "run.toml").is_file() or (folder / INIT).is_file()
    if config.init is not None and kept:
        table["init"] = hashlib.sha256(_content(config.init)).hexdigest()
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:16]


def refuse_existing(folder: Path) -> None:
    """Raise UserError where the folder of a new run exists; what a start left that never got to its run.toml is no
    run.
    """
    if folder.exists() and (not folder.is_dir() or any(path.name not in UNDECIDED for path in folder.iterdir())):
        run = (folder / "run.toml").is_file()
        rest = f"remove it, or go on with `apiece resume {folder}`" if run else "for what lies there is no run"
        raise UserError(f"the run folder {str(folder)!r} exists: take another --out, {rest}.")


def ended(folder: Path) -> bool:
    """Whether the run in this folder has come to its end."""
    return (folder / "model.safetensors").is_file()


def complete(folder: Path) -> bool:
    """Whether nothing is left to do in this folder: its run has ended, has its page, and is that of its run.toml."""
    made = ended(folder) and (folder / "report.html").is_file()
    return made and noted(folder).get("digest") == digest(recorded(folder), folder)


def refuse_another(folder: Path, config: Config) -> None:
    """Raise UserError, naming the settings that differ, where the run of another configuration lies in the folder, or
    one that cannot have so many rounds.
    """
    if not (folder / "run.toml").is_file():
        return
    there, config = recorded(folder), as_kept(folder, config)
    if digest(there, folder) == digest(config, folder):
        return refuse_rounds(folder, config)
    one, two = to_table(there), to_table(config)
    differ = [k for k in one | two if k not in NOT_IDENTITY and repr(one.get(k)) != repr(two.get(k))]
    told = "; ".join(f"{k} is {one.get(k, 'not set')} there and {two.get(k, 'not set')} here" for k in differ)
    raise UserError(f"{str(folder)!r} holds a run of another configuration ({told}): take another --out, or remove it.")


def refuse_rounds(folder: Path, config: Config) -> None:
    """Raise UserError where the folder's run cannot have as many rounds as this: fewer than it has done, or its step
    sizes until now would have been others.
    """
    there, past = recorded(folder).rounds, done(folder)
    if config.rounds < past:
        raise UserError(
            f"the run in {str(folder)!r} has done {past} rounds, and rounds={config.rounds} are fewer: ask for {past} "
            "or more, or begin another with another --out."
        )
    (schedule,) = build(config.schedule, schedules)
    if any(schedule(t, there) != schedule(t, config.rounds) for t in range(past)):
        raise UserError(
            f"schedule={config.schedule!r} goes by the number of rounds: in a run of {config.rounds} the {past} rounds "
            f"that {str(folder)!r} has done of {there} would have had other step sizes: begin one with another --out."
        )


def leave_behind(folder: Path, number: int, rounds: int) -> None:
    """From now on the folder's run has so many rounds, and what comes after checkpoint `number` is none of it.

    What stands at the end goes first where there is to be another end, and run.toml changes last: a crash between
    leaves the run that it was, to be ended again, or the one that it is to be.
    """
    longer = rounds != recorded(folder).rounds
    if longer:
        for path in filter(Path.is_file, (folder / name for name in AT_END)):
            files.remove(path)
        files.sync_folder(folder)
    checkpoint.set_aside(folder, number)
    if longer:
        write_rounds(folder, rounds)
        note(folder, f"{folder} goes on from round {number}, and has {rounds} rounds now.")


def write_rounds(folder: Path, rounds: int) -> None:
    """Another number of rounds in run.toml; with how many the run began stays there, as its identity depends on it."""
    import tomli_w

    table, config = read_toml(folder / "run.toml"), from_toml(folder / "run.toml")
    known = table.get("resolved")
    table["resolved"] = {"rounds": str(config.rounds)} | (known if isinstance(known, dict) else {})
    table["config"] = to_table(replace(config, rounds=rounds))
    files.atomic_write(folder / "run.toml", tomli_w.dumps(table).encode())


def noted(folder: Path) -> dict[str, str]:
    """What the run in the folder noted of itself when it began: its lift, a word for its data."""
    table = read_toml(folder / "run.toml").get("resolved", {})
    pairs = table.items() if isinstance(table, dict) else ()
    return {name: value for name, value in pairs if isinstance(value, str)}


def refuse_other_data(folder: Path, experiment: Experiment) -> None:
    """Raise UserError where the run in the folder began on other data; one from before these were noted is believed."""
    began = noted(folder).get("data", "")
    if began and began != experiment.fingerprint:
        raise UserError(
            f"{str(folder)!r} holds a run on other data: give it the same, or begin anew with another --out."
        )


def begin(folder: Path, experiment: Experiment, lift: Any) -> None:
    """Make the folder of a new run; raises UserError where it exists and is not empty."""
    refuse_existing(folder)
    files.make_folder(folder)
    space = experiment.federated.task.space
    resolved = {
        "parameters": space.size,
        "buffers": space.buffer_size,
        "layers": space.layers,
        "lift": repr(lift),
        "cohort": experiment.cohort,
        "algorithm": repr(experiment.federated.algorithm),
        "shape": list(experiment.federation.test_pool[0].shape[1:]),
        "digest": digest(experiment.config),
        "classes": experiment.dataset.classes if experiment.dataset else 0,
        "data": experiment.fingerprint,
    }
    write_config(folder, experiment.config, resolved)


def write_config(folder: Path, config: Config, resolved: Mapping[str, Any] | None = None) -> None:
    """Write a copy of what the run starts from, then run.toml: from now on the folder is this run's."""
    import tomli_w

    if config.init is not None:
        _keep_init(folder, _content(config.init))

    table = {"config": to_table(config), "resolved": resolved or {}, "versions": versions()}
    files.make_folder(folder)
    files.atomic_write(folder / "run.toml", tomli_w.dumps(table).encode())


def _keep_init(folder: Path, content: bytes) -> None:
    path = folder / INIT
    if path.exists() and path.read_bytes() != content:
        raise UserError(f"{path} is there, and not what this run starts from: take another --out, or remove it.")
    files.make_folder(folder)
    files.atomic_write(path, content)


def _content(init: str) -> bytes:
    try:
        return Path(init).read_bytes()
    except OSError as error:
        raise UserError(f"init={init!r} cannot be read ({error.strerror}): give a model.safetensors.") from None


def keep_split(folder: Path, split: Any) -> None:
    """Write the split beside the run, where it is not there yet."""
    if split is not None and not (folder / "split.npz").exists():
        split.save(folder / "split.npz")


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a run's folder: raises UserError where another process does. The system lets go when a process ends,
    however it ends.
    """
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)  # its run.toml may become another file
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise UserError(f"another process is at work on {str(folder)!r}: let it end, or stop it.") from None
    except OSError:  # a file system without locks
        pass
    try:
        yield
    finally:
        os.close(held)


def versions() -> dict[str, str]:
    """What a result was made with."""
    found = {"python": platform.python_version(), "machine": platform.machine(), **plugins.versions()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def recorded(folder: Path) -> Config:
    """The configuration of a run's folder, to be looked at: its plug-ins may be anybody's."""
    if not (folder / "run.toml").is_file():
        raise UserError(f"{str(folder)!r} is no run folder (it has no run.toml): give the --out of a run.")
    return with_own_init(folder, from_toml(folder / "run.toml"))


def read_config(folder: Path, plugin: Sequence[str] = ()) -> Config:
    """The configuration of a run's folder, to be run: UserError where its plug-ins are not those that the command
    names.
    """
    config = recorded(folder)
    agreed = plugins.agreed(config.plugin, plugin, folder / "run.toml")
    if others := set(plugins.pinned(plugin)) - set(agreed):
        raise UserError(
            f"the run in {str(folder)!r} was made without the plugin {min(others).partition(plugins.MARK)[0]}: leave "
            "it out."
        )
    return replace(config, plugin=agreed)


def with_own_init(folder: Path, config: Config) -> Config:
    """The configuration of a folder's run with the folder's copy of what it started from, where there is one."""
    own = (folder / INIT).absolute()
    return replace(config, init=str(own)) if config.init is not None and own.is_file() else config


def read_one(folder: Path, plugin: Sequence[str] = ()) -> Config:
    """`read_config` of a folder of one run; UserError where it holds one for each of several seeds."""
    config = read_config(folder, plugin)
    if config.seeds:
        raise UserError(
            f"{str(folder)!r} holds several runs: name one of them, such as {folder / f'seed-{config.seeds[0]}'}."
        )
    return config


def say(text: str) -> None:
    """Say something about a run to whoever watches."""
    print(f"apiece: {text}", file=sys.stderr)


@cache
def say_once(text: str) -> None:
    """The same, once in the life of the process, however many of its runs have reason to."""
    say(text)


def newest(
    folder: Path,
    digest: str,
    tell: Callable[[str], None],
    most: int | None = None,
    agree: Callable[[checkpoint.Checkpoint], None] | None = None,
) -> checkpoint.Checkpoint | None:
    """The run's newest checkpoint that can be used (`checkpoint.latest`), None where it has none yet, and why newer
    ones were refused is told; UserError where all were.
    """
    found, refused = checkpoint.latest(folder, digest, most, agree)
    if found is None and refused:
        told = "; ".join(dict.fromkeys(reason.rstrip(".") for reason in refused))
        raise UserError(
            f"no checkpoint of {folder} can be used: {told}: put what is lost or damaged back from a copy, or begin "
            "again with another --out."
        )
    for reason in refused:
        assert found is not None
        tell(f"{reason} The checkpoint of round {found.number} is taken instead.")
    return found


def note(folder: Path, text: str) -> None:
    """Say something about a run to whoever watches, and keep it beside the run."""
    say(text)
    with open(folder / "notes.txt", "a") as file:
        file.write(text + "\n")


def finish(folder: Path, result: Result) -> None:
    """Write what stands at the end of a run: each client's accuracy, the global model, and the report."""
    import safetensors.torch

    from apiece.report.page import write_report

    experiment = result.experiment
    place, dataset, split = experiment.federation, experiment.dataset, experiment.split
    counts = split.counts(dataset.y_train, dataset.classes) if split is not None and dataset is not None else None
    if len(place.names) <= LISTED:
        seen = set(place.seen)
        records = [
            {
                "name": name,
                "seen": i in seen,
                "samples": place.size(i),
                "accuracy": result.accuracy.get(i),
                "counts": counts[i].tolist() if counts is not None else place.label_counts(i),
            }
            for i, name in enumerate(place.names)
        ]
        files.atomic_write(folder / "clients.json", json.dumps(without_infinities(records), allow_nan=False).encode())
    files.atomic_write(folder / "model.safetensors", safetensors.torch.save(result.model()))
    observed.save(folder, result)
    write_report([folder], folder, experiment.config.target)
