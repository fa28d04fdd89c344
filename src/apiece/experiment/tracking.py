"""What `--track` adds to a run: its trackers are told every round once it is saved, and at the end each client's
metrics.

A tracker that fails does not end the run: one sentence says so, and after the last round it is tried once more, with
all rounds that it lacks. What trackers need to find their run again stands in trackers.json in the run's folder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from apiece.config import names
from apiece.config.assemble import Experiment
from apiece.config.tables import to_table
from apiece.data.catalog import OWN
from apiece.errors import UserError, said
from apiece.experiment import folders, identity
from apiece.experiment.result import Info, Result, Told
from apiece.experiment.track_files import TensorBoard
from apiece.experiment.tracker import About, Opened, Row, Tracker
from apiece.language.expression import build
from apiece.system.files import atomic_write

NAME = "trackers.json"


class Tracking:
    """The trackers of one run, none of them if it does not lead. Raises UserError for one that cannot be used."""

    def __init__(self, experiment: Experiment, folder: Path | None, leads: bool):
        config = experiment.config
        asked: list[Tracker] = build(config.track, names.SOURCES["track"]) if config.track != "none" else []
        if config.tensorboard and TensorBoard() not in asked:
            asked.append(TensorBoard())
        if twice := [
            type(one).__name__.lower() for place, one in enumerate(asked) if type(one) in map(type, asked[:place])
        ]:
            raise UserError(f"--track {config.track!r} names {twice[0]} twice: keep one of them.")
        self.trackers = {type(one).__name__.lower(): one for one in asked if leads}
        self.experiment, self.folder, self.opened = experiment, folder, dict[str, Opened]()
        self.failed, self.ended = set[str](), False
        self.latest: dict[str, dict[str, float]] = {}  # what each was told last
        for tracker in self.trackers.values():
            tracker.check(folder)
        self.notes = _notes(folder / NAME) if folder and self.trackers else {}

    def __enter__(self) -> Tracking:
        return self

    def __exit__(self, *error: object) -> None:
        for name, opened in self.opened.items():
            self._try(name, lambda name=name, opened=opened: self._close(name, opened))

    def __call__(self, told: Info) -> None:
        """Tell the trackers of the rounds so far."""
        assert isinstance(told, Told)
        for name in [name for name in self.trackers if name not in self.failed]:
            self._try(name, lambda name=name: self._rounds(name, [*told.history, told.info]))

    def end(self, result: Result) -> Result:
        """Tell the trackers of what the run has at its end, and give the result back."""
        self.ended, done = True, len(result.metrics)
        rows = clients(result)
        for name in self.trackers if done else ():
            if self.notes.get(name, {}).get("ended") != done:
                self._try(name, lambda name=name: self._end(name, result.metrics, rows))
        return result

    def _rounds(self, name: str, records: Sequence[Info]) -> None:
        """Write the rounds that the tracker lacks, the last of these records among them."""
        if name not in self.opened:
            self.opened[name] = self.trackers[name].open(self._about(name, records[-1]["round"]))
        opened = self.opened[name]
        for info in records:
            if info["round"] not in opened.there:
                self.latest[name] = numbers(info)
                opened.round(info["round"], self.latest[name])
                opened.there.add(info["round"])
                self._keep(name, self._kept(name) | opened.note | {"round": info["round"]})

    def _end(self, name: str, records: Sequence[Info], rows: Sequence[Row]) -> None:
        self._rounds(name, records)
        number, opened, last = records[-1]["round"], self.opened[name], numbers(records[-1])
        more = {key: value for key, value in last.items() if key not in self.latest.get(name, last)}
        opened.end(number, more, rows)
        self._keep(name, self._kept(name) | opened.note | {"round": number, "ended": number})

    def _close(self, name: str, opened: Opened) -> None:
        opened.close(self.ended)
        note = self.notes.get(name, opened.note)
        self._keep(name, note | {"closed": note.get("round", 0)})

    def _about(self, name: str, first: int) -> About:
        config = self.experiment.config
        settings = {key: value for key, value in to_table(config).items() if key not in ("out", "track")}
        alike = replace(config, seed=0, out=None)
        group = config.algorithm if config.algorithm == OWN else f"{config.algorithm} {identity.digest(alike)[:8]}"
        return About(f"{config.algorithm} seed {config.seed}", group, settings, self.folder, first,
                     self.notes.get(name, {}))  # fmt: skip

    def _kept(self, name: str) -> dict[str, Any]:
        """What was noted when the tracker was last let go of."""
        return {"closed": self.notes[name]["closed"]} if "closed" in self.notes.get(name, {}) else {}

    def _keep(self, name: str, note: dict[str, Any]) -> None:
        self.notes[name] = note
        if self.folder is not None:
            atomic_write(self.folder / NAME, f"{json.dumps(self.notes)}\n".encode())

    def _try(self, name: str, act: Any) -> None:
        """Do what a tracker may fail at; say so once."""
        try:
            act()
        except Exception as error:  # another package's, of any kind
            if name not in self.failed:
                folders.say(
                    f"{name} failed ({type(error).__name__}: {said(error)}), and is tried again after the last round: "
                    "the run goes on."
                )
            self.failed.add(name)


def _notes(path: Path) -> dict[str, dict[str, Any]]:
    """What the trackers noted of the run, none if there is no such file; UserError for one that is damaged."""
    try:
        notes = json.loads(path.read_bytes())
        if isinstance(notes, dict) and all(isinstance(note, dict) for note in notes.values()):
            return notes
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        pass
    raise UserError(
        f"{path} is damaged, by which the trackers find their run again: put it back from a copy, or remove it, and "
        "they begin anew."
    )


def numbers(info: Info) -> dict[str, float]:
    """A round's numbers by name, those of layers as consensus/LAYER."""
    layers = {f"consensus/{layer}": value for layer, value in info.get("consensus", {}).items()}
    return {k: v for k, v in (info | layers).items() if isinstance(v, (int, float)) and k != "round"}


def clients(result: Result) -> list[Row]:
    """Each client's metrics after the last round."""
    names = result.experiment.federation.names
    return [{"client": names[client], **values} for client, values in sorted(result.values.items())]
