"""What a report says first: what was run, and in three sentences which row is best, what it cost and what drifted."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from apiece.data.catalog import OWN
from apiece.report.metrics import BY_KEY, Measure, capital
from apiece.report.records import Run, Runs, Spread, below, measured
from apiece.report.results import differing, unlike
from apiece.report.table import comparable
from apiece.report.text import amount, number, short, with_unit

REFERENCES = ("centralized", "local")  # rows that are compared with, and never the best
TIED = 3  # so many of the rows that tie for the best are named


class End(NamedTuple):
    """A row and its value of a number at the end."""

    row: Runs
    value: Spread


def title(rows: list[Runs]) -> str:
    """What was run on which data; of a path, its last part."""
    algorithms = dict.fromkeys(str(row.config.get("algorithm", row.name)) for row in rows)
    data = dict.fromkeys(str(row.config["data"]) for row in rows if "data" in row.config)
    own = [name for name in algorithms if name not in REFERENCES] or [*algorithms]
    count = f"{len(own)} algorithms" if len(algorithms) == len(rows) else f"{len(rows)} runs"
    what = own[0] if len(own) == 1 else count
    named = [f"{OWN} data" if name == OWN else re.split(r"[/\\]", name.rstrip("/\\"))[-1] for name in data]
    return f"{what} on {', '.join(named)}" if named else what


def facts(rows: list[Runs]) -> str:
    """The settings that all rows share and that a reader needs first."""
    config, apart = rows[0].config, differing(rows)
    share = isinstance(asked := config.get("cohort"), float) and asked <= 1
    config = config | ({"cohort": f"{asked:.0%} of the"} if share else {})
    phrases = {"split": "split {}", "clients": "{} clients", "cohort": "{} clients a round", "rounds": "{} rounds"}
    found = [text.format(as_text(config[key])) for key, text in phrases.items() if key in config and key not in apart]
    seeds = {len(row.runs) for row in rows}
    found = [re.sub(r"^1 (round|client)s", r"1 \1", fact) for fact in found]
    if seeds != {1}:
        found.append(f"{min(seeds)} seeds" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)} seeds")
    said = ", ".join(found)
    return f"{capital(said)}." if said else ""


def summary(rows: list[Runs]) -> list[str]:
    """Three sentences at most, after a warning of unlike data; one for which nothing was measured is left out."""
    own = [row for row in rows if row.config.get("algorithm", row.name) not in REFERENCES] or rows
    first = measured(rows)[0]
    ways = {"global": f"global_{first.name}", "personal": f"personal_{first.name}_mean"}
    true = {"global": [row for row in own if not row.virtual], "personal": own}
    ends = {way: _ranked(found, first) for way, key in ways.items() if (found := _ends(true[way], key))}
    made = []
    if ends:
        way = next(iter(ends))
        best, personal = ends[way], ends.get("personal", [])
        beside = _elsewhere(personal, best, first) if way == "global" else ""
        made.append(f"{_reached(best, first, way)}{beside}{_alone(rows, personal, first)}.")
        made.append(_spent(best[0].row, own))
    return [*filter(None, [capital(unlike(rows)), *made, _drifted(own)])]


def as_text(value: Any) -> str:
    """A setting as the page writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "–"
    if isinstance(value, list):
        return ", ".join(map(as_text, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _ends(rows: list[Runs], key: str) -> list[End]:
    found = [End(row, value) for row in rows if (value := row.over(lambda run: run.last(key)))]
    return [end for end in found if math.isfinite(end.value.mean)]


def _ranked(ends: list[End], of: Measure) -> list[End]:
    return sorted(ends, key=lambda end: end.value.mean, reverse=of.higher)


def _reached(ends: list[End], of: Measure, way: str) -> str:
    """The best row, by how much, and whether that is beyond the spread of seeds."""
    top, what = ends[0], f"{way} {of.title}"
    if len(ends) == 1:
        return f"{top.row.name} ends with a {what} of {with_unit(top.value, of.unit)}"
    if _tied(ends):
        tied = [end.row.name for end in ends if end.value.mean == top.value.mean]
        return f"{_listed(tied, TIED)} end with the same {what}, {with_unit(top.value, of.unit)}"
    lead = _lead(top, ends[1], of)
    return f"{top.row.name} ends with the {of.best} {what}, {with_unit(top.value, of.unit)}: {lead}"


def _tied(ends: list[End]) -> bool:
    return len(ends) > 1 and ends[0].value.mean == ends[1].value.mean


def _lead(top: End, second: End, of: Measure) -> str:
    """By how much the first is better, and whether that is beyond the spread of seeds."""
    gap = abs(top.value.mean - second.value.mean)
    points = f"{100 * gap:.2g}"
    by = f"{points} percentage point{'s' * (points != '1')}" if of.unit == "%" else f"{short(gap)} {of.unit}".rstrip()
    seeds = min(top.value.seeds, second.value.seeds)
    worse, better = sorted((top.value, second.value), key=lambda value: value.mean)
    beyond = below(worse, better) if of.higher else below(_negative(better), _negative(worse))
    sure = (
        " (one seed, so the spread is unknown)"
        if seeds < 2
        else f", {'beyond' if beyond else 'within'} the spread of {seeds} seeds"
    )
    return f"{by} {'above' if of.higher else 'below'} {second.row.name}{sure}"


def _elsewhere(personal: list[End], best: list[End], of: Measure) -> str:
    """The best personal value and its lead, beside the best global one; "" for a single row, or rows that tie."""
    if len(personal) < 2 or _tied(personal):
        return ""
    top, value = personal[0], with_unit(personal[0].value, of.unit)
    what, lead = f"the {of.best} personal {of.title}, {value}", _lead(personal[0], personal[1], of)
    if top.row is best[0].row and not _tied(best):
        return f"; it also has {what}: {lead}"
    return f"; {top.row.name} has {what}: {lead}"


def _alone(rows: list[Runs], ends: list[End], of: Measure) -> str:
    """That no algorithm is better for clients than being alone, where it is so and both were measured."""
    alone = _ends([row for row in rows if row.config.get("algorithm") == "local"], f"personal_{of.name}_mean")
    if not alone or not ends:
        return ""
    top = _ranked([*ends, *alone], of)[0]
    if top not in alone or top.value.mean == ends[0].value.mean:
        return ""
    better = f"are better than all of these, with a personal {of.title} of {with_unit(top.value, of.unit)}"
    return f"; clients alone ({top.row.name}) {better}: {_lead(top, ends[0], of)}"


def _named(ends: list[End], at: End) -> str:
    """The rows that have, as the page writes numbers, the value of this one."""
    names = [end.row.name for end in ends if number(end.value) == number(at.value)]
    return _listed(names)


def _listed(names: list[str], most: int | None = None) -> str:
    """`a, b and c`; of more than `most` names, so many and the number of the rest."""
    rest = 0 if most is None else len(names) - most
    parts = [*names[:most], f"{rest} other{'s' * (rest > 1)}"] if rest > 0 else names
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]


def _spent(best: Runs, rows: list[Runs]) -> str:
    """What the best row cost, and the row that sent least."""
    sent, seconds = best.over(lambda run: run.last("bytes")), best.over(_seconds)
    done = best.over(lambda run: run.last("round"))
    if sent is None or done is None:
        return ""
    rounds = "1 round" if done.mean == 1 else f"{done.mean:g} rounds"
    spent = f" and trained for {number(seconds)} s" if seconds else ""
    every = _ends(rows, "bytes")
    least = min(every, key=lambda end: end.value.mean)
    cheaper = least.row is not best and least.value.mean < 0.995 * sent.mean
    beside = f"; {_named(every, least)} sent least, {amount(least.value)}" if cheaper else ""
    return f"{best.name} sent {amount(sent)} both ways{spent} in {rounds}{beside}."


def _drifted(rows: list[Runs]) -> str:
    """Which row's clients moved furthest from the server's model, or how far the only row's did."""
    key = next(m.key for m in comparable(rows) if m.column == "Divergence")
    ends = sorted(_ends(rows, key), key=lambda end: end.value.mean)
    if not ends:
        return ""
    what = BY_KEY[key].column.lower()
    if len(ends) == 1:
        row = ends[0].row
        begun = row.over(lambda run: float(values[0]) if len(values := run.series(key)[1]) else None)
        since = f"; at first it was {number(begun)}" if begun and row.runs[0].metrics[-1]["round"] > 1 else ""
        return f"Its clients' models drifted to a {what} of {number(ends[0].value)} from the server's{since}."
    low, high = ends[0], ends[-1]
    if number(low.value) == number(high.value):
        return f"Clients' models drifted equally far from the server's, to a {what} of {number(high.value)}."
    return (
        f"Clients' models drifted furthest from the server's with {_named(ends, high)}, to a {what} of "
        f"{number(high.value)}, and least with {_named(ends, low)}, {number(low.value)}."
    )


def _seconds(run: Run) -> float | None:
    values = run.series("seconds")[1]
    return float(values.sum()) if len(values) else None


def _negative(value: Spread) -> Spread:
    return value._replace(mean=-value.mean)
