"""What a program gives to `apiece.tune`: settings, and objects of its own, which no text names."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import partial
from numbers import Real
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from torch import nn

from apiece.config.assemble import Experiment, assemble
from apiece.config.checks import refuse_others
from apiece.config.settings import OBJECTS, Config
from apiece.config.splitting import columns_of, given_splitter
from apiece.config.tables import from_table
from apiece.data.catalog import OWN
from apiece.data.collating import collated
from apiece.data.given import as_dataset
from apiece.data.items import by_client
from apiece.errors import UserError
from apiece.system.device import to_numpy

OWNABLE = ("data", "model", "split", "metrics", "loss", "collate", *OBJECTS)  # what a program may give as an object


def separated(given: Mapping[str, Any]) -> tuple[Config, dict[str, Any]]:
    """(the settings of `federate(**given)`, the objects by name); UserError for what a search cannot take."""
    if not _plain(given.get("clients")):
        raise UserError("tune holds samples out of every client: give data, and clients as a number.")
    if not isinstance(given.get("algorithm", ""), str):
        raise UserError("tune searches an algorithm by its name: write your own in a file, and give plugin=...")
    own = {name: given[name] for name in OWNABLE if not _plain(given.get(name))}
    others = (given.get("on_round"), None, given.get("watchers", ()), own.get("collate"))
    refuse_others(given.get("model", "auto"), given.get("data", "digits"), "", own.get("loss"), *others)
    if "collate" in own:
        own["data"] = collated(OWN, own["data"], own["collate"])
    known = {field.name for field in fields(Config)} - own.keys()
    settings = {"split": "given"} if by_client(own.get("data")) else {}
    settings |= {k: v for k, v in given.items() if k in known and v is not None}
    return from_table(settings | {k: OWN for k in ("data", "model", "split") if k in own}, "tune"), own


def _plain(value: Any) -> bool:
    """Whether this is nothing, or what a command line may give: no object of a program."""
    if isinstance(value, (list, tuple)):
        return all(isinstance(text, str) for text in value)
    return value is None or isinstance(value, (str, Real, Path))


def assembled(config: Config, own: Mapping[str, Any]) -> Experiment:
    """What all trials run, but for what is searched; a UserError comes before the first trial."""
    data = own.get("data")
    dataset = as_dataset(data, columns_of(config)) if data is not None else None
    splitter = given_splitter(own.get("split"))
    return assemble(config, dataset, own.get("model"), own.get("loss"), own.get("metrics"), splitter=splitter)


def checksums(own: Mapping[str, Any], experiment: Experiment) -> dict[str, str]:
    """What tells the data and a program's objects from others: of functions and modules also their code, and of a model
    its first weights, too.
    """
    found, setup = {"the data's checksum": experiment.fingerprint}, experiment.federated.setup
    for name in own.keys() - {"data"}:
        told = re.sub(r" at 0x\w+", "", "\n".join(_described(own[name]))).encode()
        if name == "model":
            told += to_numpy(setup.initial).tobytes() + to_numpy(setup.initial_buffers).tobytes()
        found[name] = f"{OWN}, with the checksum {zlib.crc32(told):08x}"
    return found


def _described(thing: Any) -> Iterator[str]:
    """What an object is, as text: its name or settings, and the code of what the program itself wrote."""
    yield repr(thing)
    if isinstance(thing, Mapping | list | tuple):
        for part in thing.values() if isinstance(thing, Mapping) else thing:
            yield from _described(part)
        return
    if isinstance(thing, partial):
        yield from _described(thing.func)
    parts = [part for part in (thing.modules() if isinstance(thing, nn.Module) else [thing]) if _is_own(type(part))]
    for part in parts:
        state = getattr(part, "__dict__", {})
        yield repr({name: value for name, value in state.items() if _plain(value) and name != "training"})
    for function in (thing, *(one for kind in dict.fromkeys(map(type, parts)) for one in vars(kind).values())):
        function = getattr(function, "__func__", function)  # of a method, static or not
        if isinstance(function, FunctionType):
            cells = [cell.cell_contents for cell in function.__closure__ or ()]
            yield from map(repr, (function.__defaults__, function.__kwdefaults__, *cells))
            yield from _operations(function.__code__)


def _is_own(kind: type) -> bool:
    return kind.__module__.partition(".")[0] not in ("torch", "apiece", "builtins", "functools")


def _operations(code: CodeType) -> Iterator[str]:
    """A function's operations, names and constants, but not where it stands in its file."""
    yield f"{code.co_code.hex()} {code.co_names}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _operations(constant)
        else:
            yield repr(sorted(constant, key=repr) if isinstance(constant, frozenset) else constant)
