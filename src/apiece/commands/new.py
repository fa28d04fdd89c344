"""The command that begins a study: `apiece new my-study`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated, Any

from tyro.conf import Positional, arg

from apiece.data.catalog import SOURCES, source_of
from apiece.errors import UserError, beside, nearest

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
TEMPLATES = "templates", "study"
SAID = {  # what a line of study.toml says of its setting
    "data": "# a name (`apiece data` lists them), or the path of a table, arrays or images",
    "target_column": "# the column that is predicted",
    "task": "# classification, or regression of amounts",
    "client_column": "# the column that names each sample's client",
    "input": "# the columns that the model reads",
    "prepare": "# numbers are standardized; each different text of a column becomes a column of 0 and 1",
    "split": "# how samples are divided over clients: `apiece data` lists the ways",
    "clients": "# how many",
    "cohort": "# the share of the clients that train in a round",
    "model": "# `apiece run --help` names them; auto fits the data",
}
SUFFIX = ".txt"  # of templates: none is a program, or a page, of this package


@dataclass(frozen=True)
class New:
    """Make a folder to begin a study with: a configuration, an algorithm of your own, a notebook, and a README whose
    commands run as they stand.
    """

    folder: Positional[Annotated[str, arg(metavar="FOLDER")]]
    """The folder to make; its last part is the study's name."""
    data: str = "digits"
    """The data of all its runs: a name, or the path of your own table, arrays or images."""
    target_column: str | None = None
    """The column of a table that is predicted."""
    client_column: str | None = None
    """The column of a table that names each sample's owner: each is a client of the study."""

    def __call__(self) -> None:
        folder = Path(self.folder)
        refuse(folder)
        given, said = settings(self.data, self.target_column, self.client_column)
        files = written(folder.name, given)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        print("\n".join([f"{folder}: {', '.join(sorted(files))}; its README says how to go on.", *said]))


def refuse(folder: Path) -> None:
    """Raise UserError for a name that is none, and for a place that is taken."""
    if not NAME.fullmatch(folder.name):
        raise UserError(
            f"{str(folder)!r} ends with no name for a study: give letters, digits, - and _, of which the first is a "
            "letter or a digit, as in `apiece new my-study`."
        )
    if blocked := next((above for above in (folder, *folder.parents) if above.exists() and not above.is_dir()), None):
        raise UserError(f"{blocked} is a file: give a folder that does not exist, as in `apiece new my-study`.")
    if folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"{folder} exists and is not empty: give a folder that does not exist, or empty it.")


def settings(data: str, target: str | None, client: str | None) -> tuple[dict[str, Any], list[str]]:
    """What a study says of its data, and of how they become clients, and sentences on a table that was looked at.
    Raises UserError for a path at which nothing lies, and for a table that no run can read.
    """
    from apiece.data import images
    from apiece.data.columns import Columns
    from apiece.data.folders import ARRAYS, JSONL, TABLES, kind_of
    from apiece.data.glance import glance
    from apiece.data.texts import roles

    path, named, said = Path(data), source_of(data) is not None, list[str]()
    if not named and not path.exists():
        meant = f"{near}." if (near := beside(path)) else nearest(data, SOURCES)
        raise UserError(f"--data {data}: nothing lies there, and no data set has that name; {meant}")
    if named and (column := target or client):
        raise UserError(f"a column {column!r} is named, and no table that has it: give the table's path by --data.")
    columns = {"target_column": target, "client_column": client}
    found: dict[str, Any] = {"data": data if named else str(path.absolute())}
    found |= {name: column for name, column in columns.items() if column is not None}
    kind = None if named else kind_of(path)
    if kind is TABLES:
        table = glance(path, Columns(target=target, client=client))
        found |= {"task": table.task, "input": [column.name for column in table.inputs], "prepare": "onehot"}
        said = table.told()
        if table.client is not None:
            found["client_column"] = client = table.client.name
    elif kind is JSONL:
        lines, label, client = roles(path, target, client)
        said = [f"{path}: {lines:,} texts. {f'{label} is predicted' if label else 'The next word is predicted'}."]
        if client is not None:
            found["client_column"] = client
            said += [f"Each value of {client} is a client."]
        else:
            said += ["Clients are made by dividing the texts. If a field says whose a text is, give --client-column."]
    elif not named and path.is_dir() and (kind is ARRAYS or images.by_client(path)):
        found["split"] = client = "natural"
        said = [f"{path}: each {'file' if kind is ARRAYS else 'folder'} is a client."]
    elif not named and path.is_file() and kind is None:
        how = "save it as a .csv, with commas between its columns, or as a .parquet, .npz or .jsonl"
        raise UserError(f"--data {data}: is not read: {how}.")
    found |= {} if client else {"split": "dirichlet(0.1)", "clients": 20}
    found |= {"cohort": 1.0 if client else 0.25, "model": "mlp(hidden=[64])" if data == "digits" else "auto"}
    return found, said


def written(study: str, given: dict[str, Any]) -> dict[str, str]:
    """The files of a study by name, with these settings."""
    lines = (f"{f'{name} = {json.dumps(value)}':28} {SAID[name]}" for name, value in given.items())
    call = ", ".join(f"{name}={value!r}" for name, value in given.items())
    words = {"name": study, "settings": "\n".join(lines), "arguments": json.dumps(call)[1:-1]}
    templates = [file for file in files("apiece.commands").joinpath(*TEMPLATES).iterdir() if file.name.endswith(SUFFIX)]
    filled = (Template(file.read_text("utf-8")).safe_substitute(words) for file in templates)
    return dict(zip([file.name.removesuffix(SUFFIX) for file in templates], filled, strict=True))
