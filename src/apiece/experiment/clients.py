"""The clients of a run: where their rows are kept, and which of them are measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from apiece.config.assemble import Experiment
from apiece.engine import row
from apiece.engine.clients import Clients
from apiece.errors import UserError
from apiece.experiment.choice import wired
from apiece.measure.evaluate import Evaluation, Panel
from apiece.storage.disk import DiskRows
from apiece.storage.row_format import RowFormat
from apiece.storage.rows import MemoryRows, Rows
from apiece.storage.shared import SharedRows
from apiece.system.ranks import Ranks, join


def clients_of(experiment: Experiment, folder: Path | None, digest: str, lift: Any) -> Clients:
    """The clients that a run trains, with their rows in its folder, or in memory if it has none."""
    if wired(experiment):
        from apiece.wired.remote import Remote
        from apiece.wired.remote_clients import RemoteClients
        from apiece.wired.server import WiredClients

        kind = RemoteClients if isinstance(experiment.federation, Remote) else WiredClients
        return kind.open(experiment, folder, digest, lift)
    ranks, fresh = join(), row.write(row.fresh(experiment.federated.setup))
    rows = _rows(folder, RowFormat.of(fresh), digest, ranks) if fresh else None
    return experiment.clients(lift, rows=rows, on_bad_client=experiment.config.on_bad_client, ranks=ranks)


def _rows(folder: Path | None, layout: RowFormat, digest: str, ranks: Ranks) -> Rows:
    if ranks.world > 1 and folder is None:
        raise UserError("several ranks keep clients' rows in one folder: give the run an --out that all of them share.")
    if folder is None:
        return MemoryRows(layout)
    return SharedRows(folder, layout, digest, ranks) if ranks.world > 1 else DiskRows(folder, layout, digest)


def as_measured(experiment: Experiment, clients: Clients) -> Clients:
    """The clients as they are measured: those of `centralized` are pooled for training, but measured one by one."""
    if experiment.training is experiment.federation:
        return clients
    return replace(experiment, training=experiment.federation).clients(clients.lift, ranks=clients.ranks)


def evaluation_of(experiment: Experiment, clients: Clients, panel: Panel, workers: int) -> Evaluation:
    """What measures the models: in this process, or, of clients on other machines, by messages to them."""
    if wired(experiment):
        from apiece.wired.remote_clients import RemoteClients, RemoteEvaluation

        if isinstance(clients, RemoteClients):
            return cast(Evaluation, RemoteEvaluation(experiment.federated, experiment.federation, clients, panel))
    return Evaluation(experiment.federated, experiment.federation, clients, panel, workers)
