"""A node between two messages: its own data, its own folder, and what it lets a coordinator decide.

A coordinator decides by names alone: a model and an algorithm of this package, numbers, and the names of metrics. A
path never comes from there. A program of somebody's own runs only if the node names it itself, with the same content.
"""

from __future__ import annotations

import json
import re
import tomllib
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch

from apiece.config.assemble import DTYPES
from apiece.config.settings import Config, check
from apiece.config.splitting import columns_of
from apiece.config.tables import from_table
from apiece.data.arrays import Dataset
from apiece.data.catalog import OWN
from apiece.deploy import frames, own_data
from apiece.errors import UserError, said
from apiece.language import plugins
from apiece.language.expression import functions
from apiece.language.grammar import parse
from apiece.system import files
from apiece.system.provenance import MARK
from apiece.wired.client import Client, instead_of_errors

SETTINGS, TEXT = "node.json", "run.toml"


@dataclass(frozen=True)
class Settings:
    """What the node's owner decides.

    Args:
        name: the node's, by which the coordinator and the random streams know it.
        data: the path of its data.
        model: a model that only this node's owner may name, such as hf(...); "auto" for those of the package.
        plugin: files of algorithms that this node runs.
        input, target_column, prepare, resize, task: how the data are read, as in `apiece run`.
    """

    name: str
    data: str
    model: str = "auto"
    plugin: tuple[str, ...] = ()
    input: tuple[str, ...] = ()
    target_column: str | None = None
    prepare: Any = None
    resize: str | None = None
    task: Any = "auto"

    def save(self, state: Path) -> None:
        """Write them into the node's folder."""
        files.make_folder(state)
        files.atomic_write(state / SETTINGS, json.dumps(asdict(self), indent=1).encode())

    @classmethod
    def of(cls, state: Path) -> Settings:
        """Those of a node's folder."""
        try:
            table = json.loads((state / SETTINGS).read_bytes())
            return cls(**table | {name: tuple(table[name]) for name in ("plugin", "input")})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UserError(f"{state / SETTINGS} cannot be read ({error}): begin with `apiece join`.") from None


@dataclass(frozen=True)
class Node:
    """A node: `answer` is all that it does. What goes wrong it says in its own log."""

    state: Path
    settings: Settings
    say: Callable[[str], None] = print

    @cached_property
    def dataset(self) -> Dataset:
        """The node's own data."""
        own = self.settings
        names = {name: getattr(own, name) for name in ("input", "target_column", "prepare", "resize", "task")}
        columns = columns_of(replace(Config(), **names, out=str(self.state)))
        return own_data.read(own.data, columns, own.model, own.task)

    def answer(self, frame: bytes) -> bytes:
        """The answer to a frame; whatever goes wrong is an answer too, in one sentence, and in the node's own log."""
        try:
            head, body = frames.unpack(frame)
            if head.get("ask") == "facts":
                return frames.pack({"is": "facts"} | asdict(own_data.facts(self.dataset, self.settings.name)))
            if head.get("ask") == "answer":
                return self._work(head, body)
            raise UserError(f"node {self.settings.name!r} was asked for {str(head.get('ask'))[:80]!r}, which it lacks.")
        except UserError as error:
            why = str(error)
        except Exception as error:  # no request ends the node: the next may be sound
            self.say(traceback.format_exc())
            why = f"node {self.settings.name!r} failed with {type(error).__name__} ({said(error)}): see its own log."
        self.say(f"a request was refused: {why}")
        return frames.pack({"is": "refused", "why": why})

    def _work(self, head: dict[str, Any], body: memoryview) -> bytes:
        run, to, who, text = (head.get(name) for name in ("run", "to", "who", "text"))
        if to != self.settings.name:
            raise UserError(f"node {self.settings.name!r} was sent a message for {str(to)[:80]!r}: see who is who.")
        if not isinstance(run, str) or not re.fullmatch("[a-z0-9-]{1,250}", run) or type(who) is not int:
            raise UserError(f"node {to!r} was sent a message of no run: the other side is broken.")
        folder = self.state / "runs" / run
        if isinstance(text, str):
            files.make_folder(folder)
            if not (folder / TEXT).is_file() or (folder / TEXT).read_text() != text:
                files.atomic_write(folder / TEXT, text.encode())
        if not (folder / TEXT).is_file():
            return frames.pack({"is": "stranger"})
        work = lambda: self._built(folder, who, (folder / TEXT).read_text()).answer(body)
        return frames.pack({"is": "answer"}, instead_of_errors(work, self.say))

    @cached_property
    def _built(self) -> Callable[[Path, int, str], Client]:
        """`client`, which remembers the last few."""
        return lru_cache(maxsize=4)(self.client)

    def client(self, folder: Path, who: int, text: str) -> Client:
        """The client that this node is in the run of a text; raises UserError for a run that it does not take."""
        torch.set_num_threads(1)
        try:
            table = tomllib.loads(text)
            config, resolved = from_table(table["config"], "the coordinator's run", saved=True), table["resolved"]
            shape, _ = resolved["shape"], resolved["digest"]
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"node {self.settings.name!r} was sent a run without its {error}: send it anew.") from None
        config = self.allowed(config)
        own = own_data.samples(self.dataset, resolved.get("labels", []), DTYPES[config.precision])
        mine = {"samples of shape": list(own.train[0].shape[1:]), "the columns": own_data.columns(self.dataset)}
        for (what, here), there in zip(mine.items(), (shape, resolved.get("columns", [])), strict=True):
            if here != there:
                raise UserError(
                    f"node {self.settings.name!r} has {what} {here}, and the run is for {there}: its data changed "
                    "since the run began."
                )
        return Client.of(config, resolved, folder, who, self.settings.name, own.train, own.test)

    def _named(self, entry: str) -> str:
        """The owner's own file with the content of a plug-in that a run asks for; raises UserError if there is none."""
        path, _, digest = entry.partition(MARK)
        for own in plugins.pinned(self.settings.plugin):
            if digest and own.endswith(MARK + digest):
                return own
        own, name = ", ".join(self.settings.plugin) or "none", Path(path).name
        raise UserError(
            f"the run needs the plugin {name} with the SHA-256 {digest}, and node {self.settings.name!r} has no file "
            f"with this content (it joined with {own}): the coordinator sends the file to the node's owner, who reads "
            f"it and, if they trust it, joins anew with --plugin {name}."
        )

    def allowed(self, config: Config) -> Config:
        """The run's configuration without what only this node's owner decides; raises UserError for what is refused."""
        own = self.settings
        plugin = tuple(map(self._named, config.plugin))
        here: dict[str, Any] = {"data": OWN, "data_dir": None, "out": None, "device": "cpu"}
        here |= {"tensorboard": False, "keep_best": False}  # these write into the coordinator's folder
        config = replace(config, **{k: v for k, v in here.items() if hasattr(config, k)}, plugin=plugin)
        if config.init is not None:
            raise UserError("the run starts from a file, which nodes do not take from a coordinator: leave --init out.")
        if config.model != own.model and not _ours(config.model):
            raise UserError(
                f"the run's model is {config.model!r}, which node {own.name!r} takes only if its owner names it: "
                f"`apiece join --model {config.model!r}`."
            )
        check(config)
        return config


def _ours(model: str) -> bool:
    """Whether a model is one of the package, with numbers alone as its arguments."""
    from apiece.networks import models

    if model == "auto":
        return True
    call, *more = parse(model)
    values = [*call.arguments, *(value for _, value in call.keywords)]
    ours = call.name in (*functions(models), "opt", "opt_lm")
    return not more and ours and all(not isinstance(v, str) for v in values)
