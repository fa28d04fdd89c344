"""A consortium's folder for tests, at a fixed moment."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from apiece.consortium import folder
from apiece.consortium.keys import make_key
from apiece.consortium.naming import server

NOW = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)


def made(where: Path, *names: str, at: str = "fl.example.org:8443") -> Path:
    """A consortium with these nodes (two, if none is named)."""
    folder.make(where, names or ("north", "south"), server(at), NOW)
    return where


def request_of(consortium: Path, name: str) -> Path:
    """The request of a node, whose key is made where the coordinator has the node's folder."""
    make_key(consortium / "nodes" / name)
    return consortium / "nodes" / name / "request.toml"
