"""What a reader should know before trusting a number: incomplete runs, non-finite values, lost work."""

from __future__ import annotations

import math

from apiece.report.records import Run, Runs
from apiece.report.text import short

RISEN = 3.0  # times its least value: a training loss that ends higher was thrown off
MANY = 8  # notes of one kind that are shown; the rest are only counted


def notes(rows: list[Runs]) -> list[str]:
    """One sentence each."""
    runs = [(row.name if len(row.runs) == 1 else f"{row.name}, {run.label}", run) for row in rows for run in row.runs]
    found = []
    for who, run in runs:
        if run.lost:
            found.append(f"{who}: {run.lost}.")
        found += unfinished(who, run)
        for key in ("train_loss", "global_loss", "divergence_all", "divergence_selected"):
            rounds, values = run.series(key)
            broken = rounds[[not math.isfinite(value) for value in values]] if len(values) else rounds
            if len(broken):
                found.append(f"{who}: {key} is not finite in {len(broken)} rounds, first in round {broken[0]}.")
        found += risen(who, run)
        if skipped := sum(run.series("skipped")[1]):
            found.append(f"{who}: {skipped:.0f} messages of clients were not finite and were skipped.")
    if len(found) > MANY:
        found = [*found[:MANY], f"{len(found) - MANY} more of this kind are in the runs' metrics.jsonl."]
    federated = [(who, run) for who, run in runs if run.config.get("algorithm") != "local"]  # which sends none
    return (
        found
        + untested(runs)
        + _lost(runs, "cohort", "answered", "of the clients asked answered")[:1]
        + _lost(federated, "steps", "steps_counted", "of the local steps reached the server")
    )


def unfinished(who: str, run: Run) -> list[str]:
    """That the run has not done all its rounds; empty if it has."""
    done, asked = run.metrics[-1]["round"], run.config.get("rounds")
    if not isinstance(asked, int) or done >= asked:
        return []
    stopped = ", as it was stopped there" if run.resolved.get("stopped") == str(done) else ""
    return [f"{who}: {done} of {asked} rounds are done{stopped}."]


def untested(runs: list[tuple[str, Run]]) -> list[str]:
    """Which clients have no test sample, in the first run that has any; empty if there are none."""
    for _, run in runs:
        names = [repr(str(each.get("name"))) for each in run.clients if each.get("tests") == 0]
        if names:
            listed = ", ".join(names[:MANY]) + (", ..." if len(names) > MANY else "")
            return [f"No test sample, and so no value of its own, has client {listed}: it is in no mean over clients."]
    return []


def risen(who: str, run: Run) -> list[str]:
    """That the training loss rose, which steps that are too long do; empty if it did not."""
    rounds, values = run.series("train_loss")
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return []
    least, last = int(values.argmin()), float(values[-1])
    if last <= values[0] or last <= RISEN * values[least]:
        return []
    return [
        f"{who}: the training loss rose from {short(float(values[least]))} in round {rounds[least]} to {short(last)}: "
        "lower --lr, or shorten gradients by --clip."
    ]


def _lost(runs: list[tuple[str, Run]], whole: str, part: str, what: str) -> list[str]:
    shares = []
    for _, run in runs:
        total, counted = sum(run.series(whole)[1]), sum(run.series(part)[1])
        if total and counted < total and len(run.series(part)[1]):
            shares.append(f"{100 * counted / total:.1f}")
    if not shares:
        return []
    span = f"{min(shares, key=float)} to {max(shares, key=float)}" if len(set(shares)) > 1 else shares[0]
    return [f"{span} % {what}" + (f" in {len(shares)} of {len(runs)} runs." if len(runs) > 1 else ".")]
