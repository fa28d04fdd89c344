"""Trackers that write files into the run folder: tables with commas, and events for TensorBoard."""

from __future__ import annotations

import csv as comma_separated
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apiece.experiment.tracker import About, Numbers, Opened, Row, columns, imported, refuse_no_folder, table
from apiece.system.files import atomic_write


@dataclass(frozen=True)
class Csv:
    """Two tables in the run folder: metrics.csv, one row a round, and clients.csv, one row a client."""

    def check(self, folder: Path | None) -> None:
        refuse_no_folder("csv", folder)

    def open(self, about: About) -> Opened:
        assert about.folder is not None
        return _CsvRun(about.folder)


class _CsvRun:
    def __init__(self, folder: Path):
        self.folder, self.there, self.note = folder, set[int](), dict[str, Any]()
        self.columns = dict[str, None]()  # of the file
        self.rows: dict[int, Row] = {}  # every round of the run: a stopped run gives the earlier ones anew

    def round(self, number: int, numbers: Numbers) -> None:
        self.rows[number] = {"round": number, **numbers}
        if not self.rows[number].keys() <= self.columns.keys():
            return self._whole()
        with open(self.folder / "metrics.csv", "a", newline="") as file:
            comma_separated.DictWriter(file, list(self.columns)).writerow(self.rows[number])

    def _whole(self) -> None:
        self.columns = dict.fromkeys(columns(self.rows.values()))
        atomic_write(self.folder / "metrics.csv", table(list(self.rows.values())).encode())

    def end(self, number: int, more: Numbers, clients: Sequence[Row]) -> None:
        self.rows[number] = {**self.rows[number], **more}
        self._whole()
        atomic_write(self.folder / "clients.csv", table(clients).encode())

    def close(self, ended: bool) -> None:
        pass


@dataclass(frozen=True)
class TensorBoard:
    """Event files in the run folder's `tensorboard/`."""

    def check(self, folder: Path | None) -> None:
        refuse_no_folder("tensorboard", folder)
        imported("torch.utils.tensorboard", "TensorBoard", "tensorboard")

    def open(self, about: About) -> Opened:
        return _TensorBoardRun(about)


class _TensorBoardRun:
    def __init__(self, about: About):
        from torch.utils.tensorboard import SummaryWriter

        assert about.folder is not None
        folder, self.note = about.folder / "tensorboard", dict[str, Any]()
        known = int(about.noted.get("round", about.first if folder.exists() else 0))
        self.there = set(range(1, min(known + 1, about.first)))  # what comes after is purged, and written again
        self.writer = SummaryWriter(str(folder), purge_step=len(self.there) + 1)

    def round(self, number: int, numbers: Numbers) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, number)
        self.writer.flush()

    def end(self, number: int, more: Numbers, clients: Sequence[Row]) -> None:
        self.round(number, more)
        for name in [key for key in (clients[0] if clients else {}) if key != "client"]:
            values = np.array([row[name] for row in clients if name in row])
            self.writer.add_histogram(f"clients/{name}", values, number)

    def close(self, ended: bool) -> None:
        self.writer.close()


def csv() -> Csv:
    """Comma-separated tables in the run folder: metrics.csv and, at the end, clients.csv."""
    return Csv()


def tensorboard() -> TensorBoard:
    """Event files for TensorBoard in the run folder."""
    return TensorBoard()
