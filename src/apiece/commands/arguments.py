"""What several commands take as an argument."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import arg

Folder = Annotated[str, arg(metavar="FOLDER")]
Trusted = Annotated[
    tuple[str, ...],
    arg(help="The plug-in files that the run was made with: a file that only its folder names is not executed."),
]
