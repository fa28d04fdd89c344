"""What the command line lists: the algorithms, the data sets and the splits, one line each."""

from __future__ import annotations

import json
from typing import Any

from apiece.data.catalog import SOURCES
from apiece.language import algorithms as named
from apiece.language import plugins, splits
from apiece.language.expression import catalog


def algorithms(plugin: tuple[str, ...]) -> list[dict[str, Any]]:
    """The algorithms, those of plug-ins too, with their papers' settings."""
    return [
        {"name": e.name, "arguments": e.signature, "about": e.line, "paper_defaults": dict(e.paper_defaults)}
        for e in catalog(plugins.names(named.NAMED, plugin))
    ]


def data() -> list[dict[str, Any]]:
    """The data sets, then the splits."""
    entries: list[dict[str, Any]] = [
        {
            "kind": "data",
            "name": s.name,
            "arguments": "",
            "about": f"{s.samples[0]} + {s.samples[1]} samples, {s.classes} classes, "
            f"{'x'.join(map(str, s.shape)) or 'text'}; {s.reference}",
        }
        for s in SOURCES.values()
    ]
    return entries + [
        {"kind": "split", "name": e.name, "arguments": e.signature, "about": e.line} for e in catalog(splits.NAMED)
    ]


def as_text(entries: list[dict[str, Any]], as_json: bool) -> str:
    """The entries as JSON, or one line each."""
    if as_json:
        return json.dumps(entries, indent=2)
    width = min(60, max(len(e["name"] + e["arguments"]) for e in entries))
    return "\n".join(f"{e['name'] + e['arguments']:<{width}}  {e['about']}" for e in entries)
