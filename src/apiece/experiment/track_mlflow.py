"""The tracker MLflow."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from apiece.errors import UserError, said
from apiece.experiment.tracker import About, Numbers, Opened, Row, imported, table


@dataclass(frozen=True)
class Mlflow:
    """MLflow, in a database of SQLite or on a server. `uri`: where (default: MLFLOW_TRACKING_URI, else mlflow.db in
    this folder).
    """

    uri: str = ""
    experiment: str = "apiece"

    @property
    def place(self) -> str:
        return self.uri or os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"

    def check(self, folder: Path | None) -> None:
        imported("mlflow", "MLflow", "mlflow")
        try:
            self.client()
        except Exception as error:  # of a database, a server or a network
            raise UserError(f"MLflow cannot be used at {self.place!r} ({said(error)}): give another uri.") from None

    def client(self) -> tuple[Any, str]:
        """(the client, the experiment's id); an experiment that is not there is made, its files beside the database."""
        for name in ("mlflow.store.db.utils", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        client = import_module("mlflow.tracking").MlflowClient(self.place)
        found = client.get_experiment_by_name(self.experiment)
        if found is None:
            database = self.place.removeprefix("sqlite:///")
            beside = {} if database == self.place else {"artifact_location": _beside(database)}
            return client, client.create_experiment(self.experiment, **beside)
        if found.lifecycle_stage == "deleted":
            raise UserError(f"the experiment {self.experiment!r} was deleted there")
        return client, found.experiment_id

    def open(self, about: About) -> Opened:
        return _MlflowRun(self, about)


def _beside(database: str) -> str:
    return (Path(database).absolute().parent / "mlartifacts").as_uri()


class _MlflowRun:
    EACH = "answered"  # a number of every round, by which the rounds that are there are found

    def __init__(self, tracker: Mlflow, about: About):
        self.client, experiment = tracker.client()
        known = about.noted.get("id") if about.noted.get("uri") == tracker.place else None
        found = known and self.client.search_runs([experiment], f"attributes.run_id = '{known}'")
        if not found:
            tags = {"apiece.group": about.group, "apiece.folder": str(about.folder or "")}
            self.id = self.client.create_run(experiment, run_name=about.name, tags=tags).info.run_id
            for name, value in about.settings.items():
                self.client.log_param(self.id, name, value)
        else:
            self.id = str(known)
            self.client.update_run(self.id, status="RUNNING")
        self.note: dict[str, Any] = {"id": self.id, "uri": tracker.place}
        self.there = {one.step for one in self.client.get_metric_history(self.id, self.EACH)}

    def round(self, number: int, numbers: Numbers) -> None:
        metric = import_module("mlflow.entities").Metric
        now = int(time.time() * 1000)
        named = {re.sub(r"[^\w\-. /]", "_", name): value for name, value in numbers.items()}
        self.client.log_batch(self.id, [metric(name, value, now, number) for name, value in named.items()])

    def end(self, number: int, more: Numbers, clients: Sequence[Row]) -> None:
        if more:
            self.round(number, more)
        self.client.log_text(self.id, table(clients), "clients.csv")

    def close(self, ended: bool) -> None:
        self.client.set_terminated(self.id, "FINISHED" if ended else "KILLED")


def mlflow(uri: str = Mlflow.uri, experiment: str = Mlflow.experiment) -> Mlflow:
    """MLflow, in a database of SQLite (sqlite:///mlflow.db) or on a server (http://...)."""
    return Mlflow(uri, experiment)
