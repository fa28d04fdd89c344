"""A configuration that says all it means: where its files are, what its split is, how many clients there are."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from apiece.config.settings import AUTO, BY_DATA, CLIENTS, Config
from apiece.data.catalog import OWN, source_of
from apiece.language.grammar import Call, parse

OWNED, OTHERWISE = "natural", "dirichlet(0.1)"  # the split of samples whose owners a column names, and of others


def located(config: Config) -> Config:
    """The configuration with its files named by absolute paths, and with its number of clients, unless the data are to
    say it.
    """
    return counted(placed(config))


def placed(config: Config) -> Config:
    """The configuration with its files named by absolute paths, so that it means the same files from any folder."""
    named = {name: _absolute(path) for name in ("init", "data_dir") if (path := getattr(config, name)) is not None}
    data = config.data if source_of(config.data) else _absolute(config.data)
    first, *more = (Call(OWN),) if config.split == OWN else parse(config.split)
    split = str(_placed(first)) if first.name == "saved" and not more else config.split
    model = _located_model(config.model)
    return replace(config, data=data, split=split, model=model, **named)


def divided(config: Config) -> Config:
    """The configuration with the split that `auto` stands for."""
    if config.split != AUTO:
        return config
    return replace(config, split=OTHERWISE if config.client_column is None else OWNED)


def counted(config: Config) -> Config:
    """The configuration with its split, and with its number of clients, unless the data are to say it."""
    config = divided(config)
    if config.clients is not None or config.split == OWN or parse(config.split)[0].name in BY_DATA:
        return config
    return replace(config, clients=CLIENTS)


def _located_model(text: str) -> str:
    """The text of a model, its folder named by an absolute path."""
    if not text.startswith("hf("):
        return text
    first, *more = parse(text)
    return text if more else str(_placed(first))


def _absolute(path: str) -> str:
    """The absolute path of what exists; any other text unchanged, which is then refused."""
    return str(Path(path).absolute()) if os.path.exists(path) else path


def _placed(call: Call) -> Call:
    """The call with its files and folders named by absolute paths."""
    path = lambda value: _absolute(value) if isinstance(value, str) else value
    keywords = tuple((name, path(value)) for name, value in call.keywords)
    return replace(call, arguments=tuple(map(path, call.arguments)), keywords=keywords)
