"""A configuration as plain values: read from a TOML file or a table, written to one, and as command-line flags."""

from __future__ import annotations

import dataclasses
import shlex
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from apiece.config.located import counted
from apiece.config.settings import OBJECTS, Config, shown
from apiece.data.catalog import OWN
from apiece.errors import UserError, nearest
from apiece.language.expression import Misfit, fit
from apiece.system.files import read_toml

COUNT_OR_SHARE = int | float  # the type of a setting that is a whole number of something, or a share of all
KINDS = get_type_hints(Config)
HELD_OUT: dict[str, Any] = {"validation": 0.1, "measure_on": "validation"}  # what a search measures on: no test sample
LATER = {
    "task": "auto",
    "keep_best": False,
    "measure_on": "test",
    "track": "none",
}  # settings that are left out at this value: folders from before them keep their identity
EITHER = (("steps", "epochs"), ("seed", "seeds"))  # pairs of settings of which the second replaces the first
BESIDE = ("config", "resolved", "versions", "metrics")  # the tables of a run.toml, of which the first has the settings


def from_toml(path: str | Path) -> Config:
    """The configuration of a TOML file, a run's `run.toml` (its table [config]) or plain keys."""
    return from_table(settings_in(read_toml(path), path), str(path))


def settings_in(table: dict[str, Any], path: str | Path) -> dict[str, Any]:
    """The settings in the table of a file: its table [config], beside which no other may stand, or all of it."""
    inside = table.get("config")
    if not isinstance(inside, dict):
        return table
    for key, value in table.items():
        if key not in BESIDE or not isinstance(value[0] if isinstance(value, list) and value else value, dict):
            raise UserError(f"{path}: {key!r} stands beside [config], where it would not count: move it into [config].")
    return inside


def from_table(table: dict[str, Any], where: str, saved: bool = False) -> Config:
    """The configuration of plain values by field; raises UserError for an unknown field, a value of another type, and
    two of which one would not count, unless a folder has them `saved` from a time when they were not refused.
    """
    values = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in KINDS:
            raise UserError(f"{where}: there is no setting {key!r}; {nearest(name, KINDS)}")
        if name in values:
            raise UserError(f"{where}: {name} is given twice, with - and with _: leave one out.")
        values[name] = _fitting(name, value, where)
    config, usual = Config(**values), Config()
    for one, other in () if saved else EITHER:
        if all(getattr(config, name) != getattr(usual, name) for name in (one, other)):
            raise UserError(f"{where}: {one} and {other} are both given, and only {other} would count: leave one out.")
    return config


def _fitting(name: str, given: Any, where: str) -> Any:
    """The value in the setting's type: text may be given as a whole number or a path, a list of texts as one text."""
    if name in OBJECTS and given == OWN:  # as a run's folder says it
        return given
    kind, told = KINDS[name], f"{where}: {name}={shown(_plain(given))} is not allowed;"
    items = tuple(map(_plain, given if isinstance(given, (list, tuple)) else (given,)))
    value = items if isinstance(given, (list, tuple)) else items[0]
    if any(isinstance(item, int) and abs(item) >= 2**63 for item in items):
        raise UserError(f"{told} it must be a number of 64 bits.")
    if kind == COUNT_OR_SHARE and isinstance(value, str):
        return count_or_share(value, f"{where}: {name}")
    if str in _options(kind) and isinstance(value, int):
        value = str(value)
    try:
        return fit(items if get_origin(kind) is tuple and isinstance(value, str) else value, kind)
    except Misfit:
        allowed = f"it must be of type {Config.__annotations__[name]}."
        words = [word for one in (kind, *_options(kind)) if get_origin(one) is Literal for word in get_args(one)]
        if words:
            allowed = nearest(str(value), words)
        if name == "target" and isinstance(value, str):
            allowed = "it is an accuracy; the column that is predicted is target_column."
        raise UserError(f"{told} {allowed}") from None


def _options(kind: Any) -> tuple[Any, ...]:
    """The types that a setting's value may have."""
    return get_args(kind) or (kind,)


def count_or_share(value: str | int | float, where: str) -> int | float:
    """A whole number as it is, a share (0.1 or `10%`) as a float; raises UserError for other words.

    >>> [count_or_share(text, "cohort") for text in ("1", "1.0", "100%", "12.5%", "10")]
    [1, 1.0, 1.0, 0.125, 10]
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    try:
        if text.endswith("%"):
            return float(text[:-1]) / 100
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        raise UserError(f"{where}={shown(value)} is not allowed; give a number, a share such as 0.1, or 10%.") from None


def _plain(value: Any) -> Any:
    """A number of NumPy as Python's own, a path as text, and anything else as it is."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (bool, int, float)) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def to_table(config: Config) -> dict[str, Any]:
    """The configuration as a table for TOML: settings without a value are left out.

    A number of clients above 1 is written as a float, as it always was; one client is a whole number, since 1.0 is all.
    """
    plain = {f.name: getattr(config, f.name) for f in dataclasses.fields(Config)}
    written = {
        k: float(v)
        if float in _options(KINDS[k]) and isinstance(v, int) and (KINDS[k] != COUNT_OR_SHARE or v != 1)
        else v
        for k, v in plain.items()
        if v is not None and v != () and LATER.get(k) != v
    }
    return {k: list(v) if isinstance(v, tuple) else v for k, v in written.items()}


def shared(config: Config) -> dict[str, Any]:
    """The settings that must be the same on all machines of a run."""
    return {name: value for name, value in vars(config).items() if name not in ("data_dir", "workers")}


def flags(config: Config) -> str:
    """The command-line flags of this configuration: settings at their defaults are left out.

    >>> flags(Config(clients=100, cohort=0.5, split="classes(2)", seeds=(0, 1)))
    "--split 'classes(2)' --clients 100 --cohort 0.5 --seeds 0,1"
    >>> flags(Config(clients=20, input=("age", "last name")))
    "--input age 'last name'"
    >>> flags(Config(client_column="hospital")), flags(Config(client_column="hospital", split="dirichlet(0.1)"))
    ('--client-column hospital', "--client-column hospital --split 'dirichlet(0.1)' --clients 20")
    """
    beside = counted(Config(client_column=config.client_column))  # a column of owners decides what is usual
    usual, written = to_table(dataclasses.replace(beside, client_column=None)), []
    for name, value in to_table(counted(config)).items():
        if repr(value) == repr(usual.get(name)):  # 1 is not 1.0
            continue
        if isinstance(value, bool):
            written.append(f"--{'' if value else 'no-'}{name.replace('_', '-')}")
            continue
        if isinstance(value, list) and isinstance(value[0], str):
            written.append(f"--{name.replace('_', '-')} {shlex.join(value)}")
            continue
        text = ",".join(map(str, value)) if isinstance(value, list) else value
        text = f"{text:g}" if isinstance(text, float) else str(text)
        written.append(f"--{name.replace('_', '-')} {shlex.quote(text)}")
    return " ".join(written)
