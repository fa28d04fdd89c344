"""Run folders read back into plain values (records.py), row by row.

A folder is a run (`run.toml`, `metrics.jsonl`, at its end `clients.json`), or it holds runs (`seed-0/`, ...).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from apiece.errors import UserError, meant
from apiece.report.metrics import capital, from_toml, refuse_target
from apiece.report.records import SEED_KEYS, Run, Runs, measured
from apiece.report.text import order_of
from apiece.storage import log
from apiece.storage.checkpoint_files import done
from apiece.system.files import read_toml
from apiece.system.provenance import MARK

OF_DATA = ("data", "task", "input", "target_column", "prepare", "fit", "resize", "split", "clients", "unseen",
           "validation", "measure_on")  # fmt: skip
WRITTEN = (".html", ".json", ".md")  # of files that lie beside runs: reports, and the table of a grid
DEPTH = 3  # levels below a named folder where runs are looked for


class NotBegun(UserError):
    """A folder without a finished round."""


def read_run(folder: str | Path) -> Run:
    """Read one run folder. UserError if a file is missing or cannot be read."""
    path = Path(folder)
    if not (path / "run.toml").is_file():
        raise UserError(f"{path} has no run.toml: name a folder that `apiece run` wrote.")
    tables = read_toml(path / "run.toml")
    if not (config := _flat(tables.get("config", {}))):
        raise UserError(f"{path / 'run.toml'} has no settings: put the file back, or begin another run.")
    lost = log.damage(path)
    metrics = _read_metrics(path / log.NAME, lost)
    name = str(config.get("name") or config.get("algorithm") or path.resolve().name)
    clients = _read_clients(path / "clients.json")
    versions, resolved = (_flat(tables.get(name, {})) for name in ("versions", "resolved"))
    return Run(name, config, metrics, clients, path, versions, resolved, lost, from_toml(tables.get("metrics")))


def read_runs(folders: str | Path | Iterable[str | Path]) -> list[Runs]:
    """Read run folders and folders of runs into rows, in order; runs that differ only in their seed share a row.

    UserError if a folder holds no run that has finished a round.
    """
    folders = [folders] if isinstance(folders, str | Path) else list(folders)
    if not folders:
        raise UserError("No folder was named: name one run folder or several.")
    paths = [Path(folder) for folder in folders]
    found: dict[Path, Run] = {}
    for folder in [path for path in paths if not path.is_file()] or paths:  # `runs/*` also matches reports
        for path in _find(folder):
            found.setdefault(path.resolve(), read_run(path))
    rows: dict[tuple[str, int], list[Run]] = {}
    for run in found.values():
        same = json.dumps({k: v for k, v in run.config.items() if k not in SEED_KEYS}, sort_keys=True, default=str)
        repeat = 0  # a repeated seed begins another row: a repetition is no new seed
        while any(other.config.get("seed") == run.config.get("seed") for other in rows.get((same, repeat), [])):
            repeat += 1
        rows.setdefault((same, repeat), []).append(run)
    groups = [Runs(group[0].name, tuple(group)) for group in rows.values()]
    return [Runs(name, row.runs) for name, row in zip(_labels(groups), groups, strict=True)]


def begun(folders: Iterable[str | Path], target: float | None = None) -> list[Path]:
    """The folders that hold a finished round; on stderr, names the others and what logs lack. UserError if there is no
    such folder, or if the first metric of the runs never has the value `target`.
    """
    kept, left, found = list[Path](), list[tuple[Path, NotBegun]](), list[Runs]()
    folders = [Path(folder) for folder in folders]
    files = [path for path in folders if path.is_file()]
    for path in folders:
        try:
            for row in [] if path in files else read_runs(path):
                tell_lost(row.runs)
                found.append(row)
            kept.append(path)
        except NotBegun as problem:
            left.append((path, problem))
    if left and all(path in files for path in kept):
        raise left[0][1]
    refuse_target(target, measured(found)[0].unit)
    for path, _ in left:
        print(f"apiece: {path} has no finished round, and is left out.", file=sys.stderr)
    for path in files:
        if path.suffix not in WRITTEN:
            print(f"apiece: {path} is a file, no folder of a run, and is left out.", file=sys.stderr)
    return kept


def tell_lost(runs: Iterable[Run]) -> None:
    """Print on stderr what the runs' logs lack."""
    for run in runs:
        if run.lost:
            print(f"apiece: {run.lost}.", file=sys.stderr)


def differing(rows: Iterable[Runs]) -> list[str]:
    """The settings in which rows differ, in the order of run.toml."""
    configs = [row.config for row in rows]
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if len({repr(config.get(key, ...)) for config in configs}) > 1]


def unlike(rows: Iterable[Runs]) -> str:
    """Warnings that rows had other data, other clients of the same data, or were measured after other rounds; "" if
    there is no reason for one.
    """
    rows = list(rows)
    names = differing(rows)
    of_data = [name for name in names if name in OF_DATA] or ["their samples"] * _other_samples(rows)
    told = []
    if of_data:
        told = [f"these runs differ in {', '.join(of_data)}: a difference in their numbers is not the algorithm's."]
    if "eval_every" in names:
        every = " and ".join(map(str, sorted({row.config.get("eval_every", 1) for row in rows})))
        said = f"these runs were measured every {every} rounds: compare the last values, and not the best, the means"
        told += [f"{said} over rounds, or the costs to reach a value."]
    return " ".join([*told[:1], *map(capital, told[1:])])


def _other_samples(rows: Iterable[Runs]) -> bool:
    """Whether runs with one seed began on samples, or on clients' parts of them, that are not the same."""
    found: dict[Any, set[str]] = {}
    for run in (run for row in rows for run in row.runs):
        if known := run.resolved.get("data"):
            found.setdefault(run.config.get("seed"), set()).add(known)
    return any(len(data) > 1 for data in found.values())


def _find(folder: Path) -> list[Path]:
    """The run that a folder is, or the runs in it; one without its log is included, for an error to name it."""
    if not folder.is_dir():
        do = f"{meant(folder)}name a run folder, or a folder that holds seed-0/, seed-1/, ..."
        raise UserError(f"{folder} is not a folder: {do}")
    if (folder / log.NAME).is_file():
        return [folder]
    paths = _walk(folder, DEPTH)
    if not paths and not (folder / "run.toml").is_file():
        raise NotBegun(f"{folder} holds no run that has finished a round: name a folder that `apiece run` wrote.")
    return paths or [folder]  # reading a run that hardly began raises an error that names it


def _walk(folder: Path, depth: int) -> list[Path]:
    started = folder / log.NAME
    if (folder / "run.toml").is_file() and (started.is_file() or done(folder)):
        return [folder] if done(folder) or started.stat().st_size else []
    below = [p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")] if depth else []
    return [run for child in sorted(below, key=lambda path: order_of(path.name)) for run in _walk(child, depth - 1)]


def _read_metrics(path: Path, lost: str) -> list[dict[str, Any]]:
    rounds = {row["round"]: row for row in log.logged(path)}  # after a resumption the later line counts
    if not rounds and lost:
        raise UserError(f"{lost}: put it back from a copy, or leave this folder out.")
    if not rounds:
        raise NotBegun(f"{path.parent} has no finished round in metrics.jsonl: wait for one, or name another folder.")
    return [rounds[t] for t in sorted(rounds)]


def _read_clients(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    try:
        clients = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: delete it, the report works without it.") from error
    if not isinstance(clients, list) or not all(map(_is_client, clients)):
        raise UserError(f"{path} is not a list of clients: delete it, the report works without it.")
    return clients


def _is_client(given: Any) -> bool:
    """Whether it has names and values, and all that it counts are numbers of samples."""
    if not isinstance(given, dict) or not isinstance(counts := given.get("counts") or [], list):
        return False
    return all(isinstance(count, int) for count in (given.get("samples", 0), given.get("tests") or 0, *counts))


def _flat(table: Any, prefix: str = "") -> dict[str, Any]:
    """A table's values by dotted names; empty if it is no table."""
    flat: dict[str, Any] = {}
    for key, value in table.items() if isinstance(table, dict) else ():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _labels(rows: list[Runs]) -> list[str]:
    """Names that distinguish rows: the algorithm, then the settings in which its namesakes differ, then the folder."""
    labels = []
    for row in rows:
        namesakes = [other for other in rows if other.name == row.name]
        differ = [key for key in differing(namesakes) if key != "algorithm" and key in row.config]
        told = (f"{key} {_told(key, row.config[key], namesakes)}" for key in differ[:3])
        labels.append(", ".join([row.name, *told]))
    same = [labels.count(label) > 1 for label in labels]
    paths = [row.runs[0].path if len(row.runs) == 1 else row.runs[0].path.parent for row in rows]
    return [f"{label} ({path})" if s else label for label, s, path in zip(labels, same, paths, strict=True)]


def _told(key: str, value: Any, rows: list[Runs]) -> Any:
    """A setting's value; of a path its last part, where that distinguishes the rows, and of a plug-in's hash its
    beginning.
    """
    if key == "plugin" and isinstance(value, list):
        entries = (str(entry).partition(MARK) for entry in value)
        return " ".join(f"{Path(path).name} {digest[:6]}".rstrip() for path, _, digest in entries)
    names = [Path(str(row.config.get(key))).name for row in rows]
    values = [str(row.config.get(key)) for row in rows]
    return Path(value).name if isinstance(value, str) and len(set(names)) == len(set(values)) else value
