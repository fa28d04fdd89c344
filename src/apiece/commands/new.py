"""The command that begins a study: `apiece new my-study`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated

from tyro.conf import Positional, arg

from apiece.errors import UserError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
TEMPLATES = "templates", "study"
SUFFIX = ".txt"  # of templates: none is a program, or a page, of this package


@dataclass(frozen=True)
class New:
    """Make a folder to begin a study with: a configuration, an algorithm of your own, a notebook, and a README whose
    commands run as they stand.
    """

    folder: Positional[Annotated[str, arg(metavar="FOLDER")]]
    """The folder to make; its last part is the study's name."""

    def __call__(self) -> None:
        folder = Path(self.folder)
        refuse(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in written(folder.name).items():
            (folder / name).write_text(text, encoding="utf-8")
        print(f"{folder}: {', '.join(sorted(written(folder.name)))}; its README says how to go on.")


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


def written(study: str) -> dict[str, str]:
    """The files of a study by name."""
    templates = [file for file in files("apiece.commands").joinpath(*TEMPLATES).iterdir() if file.name.endswith(SUFFIX)]
    filled = (Template(file.read_text("utf-8")).safe_substitute(name=study) for file in templates)
    return dict(zip([file.name.removesuffix(SUFFIX) for file in templates], filled, strict=True))
