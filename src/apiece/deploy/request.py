"""What a coordinator is asked to run: a file in its folder, by which a run goes on whatever ended meanwhile.

    requests/NAME.toml      the run's settings, its quorum and its deadline
    requests/NAME.nodes     what the nodes told of their data when the run began
    requests/NAME.log       what a person must know: who did not answer, and why
    requests/NAME.ended     one sentence: how it ended; while this is missing, `apiece serve` submits the run again
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from apiece.config.settings import Config
from apiece.config.tables import from_table, to_table
from apiece.errors import UserError
from apiece.system import files
from apiece.system.files import read_toml

FOLDER = "requests"
LONGEST = 1e7  # seconds, more than a hundred days


@dataclass(frozen=True)
class Terms:
    """What a run asks of its nodes.

    Args:
        nodes: how many nodes take part: the run begins once so many are there.
        quorum: how many answers a phase needs; with fewer it is tried again.
        deadline: the seconds after which who has not answered is absent.
        patience: the seconds in which the nodes must be there at the beginning.
    """

    nodes: int = 2
    quorum: int = 1
    deadline: float = 300.0
    patience: float = 3600.0

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise UserError(f"--nodes {self.nodes} must be 1 or more.")
        if not 1 <= self.quorum <= self.nodes:
            raise UserError(f"--quorum {self.quorum} must be at least 1, and at most the {self.nodes} nodes.")
        for name, seconds in {"--deadline": self.deadline, "patience": self.patience}.items():
            if not 0 < seconds <= LONGEST:
                raise UserError(f"{name} {seconds:g} must be more than 0 seconds, and at most {LONGEST:,.0f}.")


@dataclass(frozen=True)
class Request:
    """A run that a coordinator was asked for."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    def refuse_existing(self) -> None:
        """Raise UserError if this run was asked for already."""
        if self.path.exists():
            raise UserError(
                f"there is a run {self.name!r} already: take another --out, or `apiece deploy resume {self.name}`."
            )

    def write(self, config: Config, terms: Terms) -> None:
        """Ask for a run; raises UserError if there is one of that name."""
        self.refuse_existing()
        files.make_folder(self.path.parent)
        above = _above(Path(str(config.out)))
        table = {"terms": dataclasses.asdict(terms), "config": to_table(config), "above": [str(above), _number(above)]}
        files.atomic_write(self.path, tomli_w.dumps(table).encode())

    def change(self, config: Config) -> None:
        """Ask for the run with these settings from here on."""
        files.atomic_write(self.path, tomli_w.dumps(self._table() | {"config": to_table(config)}).encode())

    def read(self) -> tuple[Config, Terms]:
        """The run's settings and terms."""
        table = self._table()
        return from_table(table["config"], str(self.path), saved=True), Terms(**table["terms"])

    def _table(self) -> dict[str, Any]:
        """What the file says; raises UserError for one that was changed."""
        table, terms = read_toml(self.path), {field.name for field in dataclasses.fields(Terms)}
        tables = all(isinstance(table.get(name), dict) for name in ("config", "terms"))
        if not tables or not terms.issuperset(table["terms"]) or not isinstance(table["config"].get("out"), str):
            raise UserError(f"{self.path} is no request of a run, as it was changed: remove it, and ask anew.")
        return table

    def refuse_out_of_reach(self) -> None:
        """Raise UserError if this process, which runs the request, cannot write the run's folder, or if it is shown
        another place by that name than whoever asked: a unit of systemd has a /tmp and a /home of its own.
        """
        table = self._table()
        out, (above, number) = Path(table["config"]["out"]), table.get("above", ("", -1))
        if os.path.exists(out):
            return
        why = "cannot write there" if files.unwritable(_above(out)) else ""
        if not os.path.isdir(above) or _number(Path(above)) != number:
            why = "is shown another folder by that name, as its unit of systemd says"
        if why:
            there = self.path.parents[1] / "runs" / out.name
            raise UserError(f"--out {out}: the server {why}; give a folder that both reach, such as {there}.")

    def _beside(self, kind: str) -> Path:
        return self.path.with_suffix(f".{kind}")

    @property
    def stop(self) -> Path:
        """The file that asks the run to end after its present round."""
        return self._beside("stop")

    @property
    def newcomers(self) -> Path:
        """The file that asks for a model for each node that was not in training."""
        return self._beside("newcomers")

    def due(self) -> bool:
        """Whether there is something to do."""
        return self.ended() is None or self.newcomers.exists()

    @property
    def lock(self) -> Path:
        """What the process that is at work on the run holds."""
        return self._beside("lock")

    def begin(self) -> None:
        """A process is at work on the run from now on."""
        self._beside("begun").touch()

    def begun(self) -> bool:
        """Whether a process that was submitted last has been at work on the run."""
        return self._beside("begun").exists()

    def clear_begun(self) -> None:
        """The run is to be submitted once more."""
        self._beside("begun").unlink(missing_ok=True)

    @property
    def log(self) -> Path:
        return self._beside("log")

    def told(self) -> list[dict[str, Any]] | None:
        """What the nodes told when the run began; None before that."""
        path = self._beside("nodes")
        return json.loads(path.read_bytes()) if path.is_file() else None

    def keep_told(self, told: list[dict[str, Any]]) -> None:
        files.atomic_write(self._beside("nodes"), json.dumps(told).encode())

    def forget_told(self) -> None:
        """The nodes are to tell of their data anew."""
        self._beside("nodes").unlink(missing_ok=True)

    def say(self, text: str) -> None:
        """Write a sentence into the run's log, with the time."""
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {_line(text)}"
        print(f"apiece: {line}", flush=True)
        with open(self.log, "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def end(self, sentence: str) -> None:
        """The run has ended, in this way."""
        files.atomic_write(self._beside("ended"), _line(sentence).encode())

    def ended(self) -> str | None:
        """How the run ended; None while it has not."""
        path = self._beside("ended")
        return path.read_text() if path.is_file() else None

    def reopen(self) -> None:
        """Let a run that was stopped or failed go on."""
        for path in (self.stop, self._beside("ended")):
            if path.exists():
                files.remove(path)


def _line(text: str) -> str:
    """A text in one line that can be written: what a node said in it may hold line ends, and letters that are none."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _above(folder: Path) -> Path:
    """The nearest folder above this one that exists."""
    return next(above for above in folder.absolute().parents if os.path.isdir(above))


def _number(folder: Path) -> int:
    """What tells a folder from others of the same name."""
    return folder.stat().st_ino


def requests(state: Path) -> list[Request]:
    """All runs that a coordinator was asked for, in the order of their names."""
    return [Request(path) for path in sorted((state / FOLDER).glob("*.toml"))]
