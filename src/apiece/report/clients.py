"""Each client's metrics, round by round, as a table of pandas."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from apiece.errors import UserError, with_extra
from apiece.report.results import read_runs
from apiece.storage.log import VALUES, logged

if TYPE_CHECKING:
    from pandas import DataFrame


def client_metrics(folder: str | Path) -> DataFrame:
    """Each client's value of each metric after each round in which it was measured, from a run's folder or a folder of
    runs: a data frame with the columns run (the folder's name), round, client, metric and value.

    A value that a client's test samples do not define (AUROC of one class) is left out. Raises UserError if pandas is
    missing, or if the folder holds no run.

    >>> from tempfile import TemporaryDirectory
    >>> from apiece import federate
    >>> with TemporaryDirectory() as folder:
    ...     run = federate(clients=5, rounds=2, steps=5, out=f"{folder}/run")
    ...     table = client_metrics(f"{folder}/run")
    >>> list(table.columns), sorted(set(table["client"])), sorted(set(table["round"]))  # doctest: +NORMALIZE_WHITESPACE
    (['run', 'round', 'client', 'metric', 'value'],
     ['client-0', 'client-1', 'client-2', 'client-3', 'client-4'], [1, 2])
    """
    try:
        import pandas
    except ImportError:
        raise UserError(f"pandas is needed for a table: {with_extra('data')}.") from None
    runs = [run for row in read_runs(folder) for run in row.runs]
    records = [
        (run.path.name, line["round"], client, metric, value)
        for run in runs
        for line in logged(run.path / VALUES)
        for metric, own in line["values"].items()
        for client, value in own.items()
    ]
    return pandas.DataFrame(records, columns=["run", "round", "client", "metric", "value"])
