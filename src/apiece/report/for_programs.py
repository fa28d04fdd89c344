"""Tables as JSON: the numbers of which a terminal shows the text."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from apiece.report.metrics import Number
from apiece.report.records import Run, Runs, Spread, best, compared, spread
from apiece.storage.log import without_infinities


def as_text(value: Any) -> str:
    """The value as JSON, with null for numbers that are not finite."""
    return json.dumps(without_infinities(value), indent=1, allow_nan=False)


def spread_for_programs(value: Spread | None) -> dict[str, Any]:
    """A mean, its sample standard deviation and the number of seeds; nulls where nothing was measured."""
    return dict.fromkeys(Spread._fields) if value is None else value._asdict()


def rows_for_programs(rows: list[Runs], shown: list[Number], target: float | None) -> list[dict[str, Any]]:
    """One entry for each row of a comparison: its runs, and each number over its seeds by its key in metrics.jsonl.

    `virtual` says that the global numbers are of an average of clients' models, which the server does not have. `best`
    says of a metric whether no other row is better by more than the spread explains; pooled data, and global numbers
    that are virtual, are left out. With a target, `to_target` has the rounds, bytes and seconds until the global value
    of the first metric reached it, over the seeds that did.
    """
    made: list[dict[str, Any]] = [
        {"name": row.name, "folders": [str(run.path) for run in row.runs], "seeds": row.seeds, "virtual": row.virtual}
        | {"numbers": {}}
        for row in rows
    ]
    for number in shown:
        values = [row.over(partial(read, number)) for row in rows]
        tops = best(compared(rows, values, number.of_server), number.higher) if number.ranked else frozenset[int]()
        for place, value in enumerate(values):
            if value is not None:
                told = value._asdict() | ({"best": place in tops} if number.ranked else {})
                made[place]["numbers"][number.key] = told
    for entry, row in zip(made, rows, strict=True) if target is not None else ():
        costs = [] if row.virtual else [run.to_target(float(target or 0)) for run in row.runs]
        reached = [cost for cost in costs if cost is not None]
        spent = {name: spread(getattr(cost, name) for cost in reached) for name in ("rounds", "bytes", "seconds")}
        entry["to_target"] = {name: spread_for_programs(value) for name, value in spent.items()}
    return made


def read(number: Number, run: Run) -> float | None:
    """The number as a table has it of a run: its last value, a sum or a median."""
    return getattr(run, number.read)(number.key)
