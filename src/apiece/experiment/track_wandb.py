"""The tracker Weights & Biases, and Trackio, which has the same functions."""

from __future__ import annotations

import io
import shutil
import time
import uuid
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from apiece.errors import UserError
from apiece.experiment.tracker import About, Numbers, Opened, Row, columns, imported


@dataclass(frozen=True)
class Wandb:
    """Weights & Biases; offline, files go into the run folder, and `wandb sync` uploads them."""

    project: str = "apiece"
    mode: Literal["offline", "online"] = "offline"

    def check(self, folder: Path | None) -> None:
        wandb = imported("wandb", "Weights & Biases", "wandb")
        if self.mode not in ("offline", "online"):
            raise UserError(f"wandb's mode is offline or online, not {self.mode!r}.")
        if self.mode == "online" and not wandb.api.api_key:
            raise UserError("wandb(mode=online) needs an account: run `wandb login`, or take mode=offline.")

    def open(self, about: About) -> Opened:
        wandb = import_module("wandb")
        known = str(about.noted.get("id", uuid.uuid4().hex[:8]))
        if self.mode == "offline" and about.folder and torn(about):
            for part in about.folder.glob(f"wandb/offline-run-*-{known}"):
                shutil.rmtree(part, ignore_errors=True)
        while about.folder and any(about.folder.glob(f"wandb/*{time.strftime('%Y%m%d_%H%M%S')}-{known}")):
            time.sleep(0.1)  # the folder of a part of the run has the second in its name
        given = {"id": known, "mode": self.mode, "dir": about.folder and str(about.folder)}
        given |= {"resume": "allow"} if self.mode == "online" else {}
        settings = wandb.Settings(silent=True, console="off")
        run = _started(wandb, about, project=self.project, name=about.name, settings=settings, **given)
        there = set(range(1, run.step)) if self.mode == "online" else whole(about)
        return _WandbRun(wandb, run, {"id": known}, there)


@dataclass(frozen=True)
class Trackio:
    """Trackio, which has the functions of wandb, on this machine."""

    project: str = "apiece"

    def check(self, folder: Path | None) -> None:
        imported("trackio", "Trackio", "trackio")

    def open(self, about: About) -> Opened:
        wandb = import_module("trackio")  # it has the same functions
        name = str(about.noted.get("id", f"{about.name} {uuid.uuid4().hex[:8]}"))  # it finds a run by its name
        if torn(about):
            for run in [run for run in wandb.Api().runs(self.project) if run.name == name]:
                run.delete()
        run = _started(wandb, about, project=self.project, name=name, resume="allow", embed=False)
        return _WandbRun(wandb, run, {"id": name}, whole(about))


def torn(about: About) -> bool:
    """Whether a killed process left a part that may lack rounds, since these packages write with a delay."""
    return about.noted.get("closed") != about.noted.get("round")


def whole(about: About) -> set[int]:
    """The rounds that are surely there: none of a part that was removed."""
    return set() if torn(about) else set(range(1, int(about.noted.get("round", 0)) + 1))


def _started(wandb: Any, about: About, **given: Any) -> Any:
    with redirect_stdout(io.StringIO()):
        return wandb.init(group=about.group, config=dict(about.settings), **given)


class _WandbRun:
    """A run of wandb, or of a package with the same functions."""

    def __init__(self, wandb: Any, run: Any, note: dict[str, Any], there: set[int]):
        self.wandb, self.run, self.note, self.there = wandb, run, note, there

    def round(self, number: int, numbers: Numbers) -> None:
        self.run.log(dict(numbers), step=number)

    def end(self, number: int, more: Numbers, clients: Sequence[Row]) -> None:
        names = columns(clients)
        table = self.wandb.Table(columns=names, data=[[row.get(key) for key in names] for row in clients])
        self.run.log({**more, "clients": table}, step=number)

    def close(self, ended: bool) -> None:
        with redirect_stdout(io.StringIO()):
            self.run.finish()


def wandb(project: str = Wandb.project, mode: str = Wandb.mode) -> Wandb:
    """Weights & Biases, mode=offline or mode=online."""
    return Wandb(project, mode)  # pyright: ignore[reportArgumentType]


def trackio(project: str = Trackio.project) -> Trackio:
    """Trackio, on this machine."""
    return Trackio(project)
