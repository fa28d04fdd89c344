"""A run's folder: run.toml, metrics.jsonl, split.npz and checkpoints; at the end also clients.json, model.safetensors
and report.html.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from filelock import FileLock, Timeout

from apiece.config.settings import Config
from apiece.config.tables import from_table, settings_in, to_table
from apiece.data.columns import PREPARATION
from apiece.errors import Busy, UserError, meant
from apiece.language import plugins
from apiece.system import files
from apiece.system.files import read_toml
from apiece.system.provenance import versions

LOCK = ".lock"  # in a folder at which a process is at work; what a killed process leaves of it locks nothing
INIT = "init.safetensors"  # a run's own copy of what it started from
MODEL, BEST = "model.safetensors", "best.safetensors"  # the global model at the run's end, and the best so far
# words of a run.toml, each as it was once spelled, and the settings that have such words
SPELLED = dict(vectorized="vectorised", centralized="centralised")  # codespell:ignore
SPELLED |= dict(normalized="normalised", center="centre")  # codespell:ignore
WORDED = ("algorithm", "server", "lift")
UNDECIDED = {"run.toml.tmp", INIT, f"{INIT}.tmp"}  # what a start may leave before its run.toml


def refuse_existing(folder: Path) -> None:
    """Raise UserError if the folder of a new run exists; the remains of a start that never wrote its run.toml are no
    run.
    """
    if folder.exists() and (not folder.is_dir() or any(path.name not in UNDECIDED for path in folder.iterdir())):
        run = (folder / "run.toml").is_file()
        rest = f"or go on with `{_again(folder)}`, which keeps its settings" if run else "for what lies there is no run"
        raise UserError(f"the run folder {str(folder)!r} exists: take another --out, {rest}.")


def _again(folder: Path) -> str:
    """The command that continues the run in a folder, whatever its run.toml is."""
    try:
        return resuming(folder, _written(folder))
    except UserError:  # a file of another version, or a damaged one: the command will say so
        return f"apiece resume {shlex.quote(str(folder))}"


def ended(folder: Path) -> bool:
    """Whether the run in this folder has ended."""
    return (folder / MODEL).is_file()


def make_place(out: Path) -> None:
    """Make the folder of a file that a command writes; UserError if it would replace a model that a run wrote."""
    if (out.parent / "run.toml").is_file() and out.name in (MODEL, BEST, INIT):
        raise UserError(f"{out} is the run's own: take another --out.")
    files.make_folder(out.parent)


def write_rounds(folder: Path, rounds: int) -> None:
    """Write another number of rounds into run.toml; the first number stays there, for the run's identity. If the run
    was stopped, it goes on.
    """
    table, config = read_toml(folder / "run.toml"), _written(folder)
    known = table.get("resolved")
    resolved = {"rounds": str(config.rounds)} | (known if isinstance(known, dict) else {})
    if "stopped" in resolved:
        resolved["went_on"] = resolved.pop("stopped")
    _write(folder, table | {"resolved": resolved, "config": to_table(replace(config, rounds=rounds))})


def write_checkpoint_every(folder: Path, every: int) -> None:
    """Write into run.toml how often the run is saved from now on."""
    table, config = read_toml(folder / "run.toml"), _written(folder)
    if config.checkpoint_every != every:
        _write(folder, table | {"config": to_table(replace(config, checkpoint_every=every))})


def write_stopped(folder: Path, number: int) -> None:
    """Note in run.toml that the run ended after this round, before its last."""
    table = read_toml(folder / "run.toml")
    _write(folder, table | {"resolved": table.get("resolved", {}) | {"stopped": str(number)}})


def _write(folder: Path, table: Mapping[str, Any]) -> None:
    import tomli_w

    files.atomic_write(folder / "run.toml", tomli_w.dumps(dict(table)).encode())


def noted(folder: Path) -> dict[str, str]:
    """What the run noted in its run.toml: its lift, a fingerprint of its data, the round at which it was stopped."""
    table = read_toml(folder / "run.toml").get("resolved", {})
    pairs = table.items() if isinstance(table, dict) else ()
    return {name: value for name, value in pairs if isinstance(value, str)}


def write_config(
    folder: Path, config: Config, resolved: Mapping[str, Any] | None = None, metrics: Sequence[Any] = ()
) -> None:
    """Write a copy of what the run starts from, then run.toml: from now on the folder is this run's. `metrics`: those
    of the run, unless accuracy is the only one.
    """
    if config.init is not None:
        _keep_init(folder, content_of(config.init))
    table = {"config": to_table(config), "resolved": resolved or {}, "versions": versions()}
    table |= {"metrics": list(metrics)} if metrics else {}
    files.make_folder(folder)
    _write(folder, table)


def _keep_init(folder: Path, content: bytes) -> None:
    path = folder / INIT
    if path.exists() and path.read_bytes() != content:
        raise UserError(f"{path} exists, and is not what this run starts from: take another --out, or remove it.")
    files.make_folder(folder)
    files.atomic_write(path, content)


def content_of(init: str) -> bytes:
    try:
        return Path(init).read_bytes()
    except OSError as error:
        do = f"{meant(init)}give a model.safetensors"
        raise UserError(f"init={init!r} cannot be read ({error.strerror}): {do}.") from None


def keep_split(folder: Path, split: Any, dataset: Any = None) -> None:
    """Write the split into the run's folder, and how a table became numbers, unless they are there."""
    if split is not None and not (folder / "split.npz").exists():
        split.save(folder / "split.npz")
    if dataset is not None and dataset.preparation is not None and not (folder / PREPARATION).exists():
        dataset.preparation.save(folder / PREPARATION)


@contextmanager
def alone(folder: Path, lock: str = LOCK, wait: float = 0) -> Iterator[None]:
    """Hold a run's folder; raises Busy if another process holds it, for `wait` seconds more. The system lets go of it
    when this process ends, however it ends. `lock`: the file in it that is held, where the folder has several runs.
    """
    path = folder / lock
    held = FileLock(path, timeout=wait, mode=0o666, fallback_to_soft=False)
    try:
        held.acquire()
    except Timeout:
        raise Busy(f"another process is at work on {str(folder)!r}: let it end, or stop it.") from None
    except (OSError, NotImplementedError):  # a file system without locks, or a folder that can only be read
        pass
    try:
        yield
    finally:
        if held.is_locked:
            with suppress(OSError):  # Windows removes it when it is released
                path.unlink()  # while it is held: whoever has opened it sees that it is gone, and makes another
            held.release()


def recorded(folder: Path) -> Config:
    """The configuration of a run's folder, only to be read: its plug-ins may be anybody's."""
    if not (folder / "run.toml").is_file():
        depths = (sorted(folder.glob(f"{deep}/run.toml")) for deep in ("*", "*/*", "*/*/*"))
        one = next((found[0].parent.relative_to(folder) for found in depths if found), None)
        such = f", or one of those in it, such as {one}" if one else ""
        such += "; the command that made a grid or a search continues it" if one and len(one.parts) > 1 else ""
        raise UserError(f"{str(folder)!r} is no run folder (it has no run.toml): give the --out of a run{such}.")
    return with_own_init(folder, _written(folder))


def _written(folder: Path) -> Config:
    """The configuration in the folder's run.toml, spelled as it is now."""
    path, now = folder / "run.toml", {earlier: word for word, earlier in SPELLED.items()}
    if not (settings := settings_in(read_toml(path), path)):
        raise UserError(f"{path} has no settings: put the file back, or begin another run.")
    return from_table(spelled(settings, now), str(path), saved=True)


def spelled(table: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    """The settings with these words of their expressions replaced."""
    each = re.compile(rf"\b({'|'.join(words)})\b")
    worded = {k: v for k, v in table.items() if k in WORDED and isinstance(v, str)}
    return dict(table) | {k: each.sub(lambda word: words[word[0]], v) for k, v in worded.items()}


def read_config(folder: Path, plugin: Sequence[str] = ()) -> Config:
    """The configuration of a run's folder, to be executed; UserError if its plug-ins are not those of the command."""
    config = recorded(folder)
    agreed = plugins.agreed(config.plugin, plugin, folder / "run.toml")
    if others := set(plugins.pinned(plugin)) - set(agreed):
        raise UserError(
            f"the run in {str(folder)!r} was made without the plugin {min(others).partition(plugins.MARK)[0]}: leave "
            "it out."
        )
    return replace(config, plugin=agreed)


def with_own_init(folder: Path, config: Config) -> Config:
    """The configuration of a folder's run, with the folder's own copy of what the run started from, if there is one."""
    own = (folder / INIT).absolute()
    return replace(config, init=str(own)) if config.init is not None and own.is_file() else config


def resuming(folder: Path, config: Config) -> str:
    """The command that continues a run, with the plug-ins that it has to name again."""
    named = (f" --plugin {shlex.quote(one.partition(plugins.MARK)[0])}" for one in config.plugin)
    return f"apiece resume {shlex.quote(str(folder))}{''.join(named)}"


def named_after(algorithm: str) -> str:
    """The name of an algorithm's folder or file: its expression without spaces, with %2F for / and the like."""
    return quote(algorithm.replace(" ", ""), safe="()[]+=,")


def only(folder: Path) -> Path:
    """The folder of the one run in a folder of one seed; any other folder as it is."""
    seeds = recorded(folder).seeds
    return folder / f"seed-{seeds[0]}" if len(seeds) == 1 else folder


def read_one(folder: Path, plugin: Sequence[str] = ()) -> Config:
    """`read_config` of a folder with one run; UserError if it holds one run per seed."""
    config = read_config(folder, plugin)
    if config.seeds:
        raise UserError(
            f"{str(folder)!r} holds several runs: name one of them, such as {folder / f'seed-{config.seeds[0]}'}."
        )
    return config


def say(text: str) -> None:
    """Print a message about a run."""
    print(f"apiece: {text}", file=sys.stderr)


@cache
def say_once(text: str) -> None:
    """The same, once in the life of the process, however many runs have reason to."""
    say(text)


def note(folder: Path, text: str) -> None:
    """Print a message about a run, and keep it in the run's folder."""
    say(text)
    with open(folder / "notes.txt", "a") as file:
        file.write(text + "\n")
