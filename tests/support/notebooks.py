"""Notebooks in MyST text, run cell by cell in this process: their code, files that a cell writes, and commands."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

CELL = re.compile(r"^```\{code-cell\} ipython3\n(.*?)^```$", re.M | re.S)


def cells(page: Path) -> list[str]:
    """The code of a notebook's cells."""
    return CELL.findall(page.read_text())


def run(page: Path) -> dict[str, Any]:
    """The names that a notebook leaves, once all of its cells ran in their order."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for code in cells(page):
        first, _, rest = code.partition("\n")
        if first.startswith("%%writefile "):
            Path(first.split()[1]).write_text(rest)
            continue
        for line in (line for line in code.splitlines() if line.startswith("!")):
            command = eval(f"f{line[1:]!r}", names)  # {name} stands for a value, as in a notebook
            subprocess.run(command, shell=True, check=True, capture_output=True)
        python = "\n".join(line for line in code.splitlines() if not line.startswith("!"))
        exec(compile(python, page.name, "exec"), names)
    return names
