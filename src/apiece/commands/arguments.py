"""What several commands take as an argument."""

from __future__ import annotations

from typing import Annotated, Literal

from tyro.conf import arg

from apiece.errors import UserError

Folder = Annotated[str, arg(metavar="FOLDER", help="The run's folder.")]
Folders = Annotated[tuple[str, ...], arg(metavar="FOLDER", help="Folders of runs, of their seeds, or of grids.")]
Trusted = Annotated[
    tuple[str, ...],
    arg(help="The plug-in files that the run was made with: a file that only its folder names is not executed."),
]
Quiet = Annotated[bool, arg(help="Print nothing but problems.")]
LogFormat = Annotated[
    Literal["text", "json"],
    arg(help="json: one JSON object a round on the standard output, and nothing else there."),
]
Json = Annotated[bool, arg(help="As JSON, and nothing else on the standard output.")]


def progress(quiet: bool, log_format: Literal["text", "json"], json: bool = False) -> bool | Literal["json"]:
    """What a run shows of its rounds; UserError if it shall show them and be quiet, or print one JSON value alone."""
    if log_format == "json" and (quiet or json):
        raise UserError(f"--{'quiet' if quiet else 'json'} and --log-format json are both given: leave one out.")
    return "json" if log_format == "json" else not (quiet or json)
