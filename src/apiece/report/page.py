"""One page of tables and figures for one run or several: a single HTML file that needs no other file."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from apiece.errors import UserError
from apiece.report.drawing import COLORS, INK, LINE, MUTED, style
from apiece.report.figures import sections
from apiece.report.grid_table import Grid
from apiece.report.metrics import refuse_target
from apiece.report.results import Run, Runs, differing, measured, read_runs
from apiece.report.table import columns, costs, default_target, readings, unbeaten
from apiece.report.text import with_unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = {INK: "var(--ink)", MUTED: "var(--muted)", LINE: "var(--line)"} | {
    c: f"var(--c{i})" for i, c in enumerate(COLORS)
}
MANY = 8  # notes of one kind that are shown; the rest are only counted


class Settings(NamedTuple):
    """The settings that all runs share, and those that differ: their names, and a list of cells for every row."""

    shared: list[tuple[str, str]]
    heads: list[str]
    cells: list[list[str]]


def write_report(folders: str | Path | Iterable[str | Path], out: str | Path, target: float | None = None) -> Path:
    """Write the page of run folders to `out`, an .html file or a folder that gets report.html; same input, same bytes.

    `target` is the global value of the first metric whose cost is shown; by default 95 % of the median run's best, or
    5 % more where less is better. The folder of a grid adds its table, and its runs in that order. UserError if a
    folder holds no run or `out` cannot be written.
    """
    out = Path(out)
    page = out if out.suffix.lower() in (".html", ".htm") else out / "report.html"
    grids, runs = [], []
    for folder in [folders] if isinstance(folders, str | Path) else folders:
        grid = Grid.kept(Path(folder))
        grids += [grid] if grid else []
        runs += [Path(folder) / name for name in grid.folders] if grid and grid.folders else [folder]
    text = render(read_runs(runs), target, grids)
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{page} cannot be written ({error.strerror}): name another file or folder.") from error
    return page


def render(rows: list[Runs], target: float | None = None, grids: Sequence[Grid] = ()) -> str:
    """The page as text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    templates = FileSystemLoader(Path(__file__).with_name("templates"))
    page = Environment(
        loader=templates, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    page.filters["page_color"] = lambda color: PAGE.get(color, color)
    measures = measured(rows)
    refuse_target(target, measures[0].unit)
    target = default_target(rows) if target is None and len(rows) > 1 else target
    svgs = iter(range(1, 1_000_000))
    results = columns(rows)
    return page.get_template("report.html").render(
        title=_title(rows),
        lead=_lead(rows),
        grids=grids,
        names=[row.name for row in rows],
        groups=_groups([column.metric.section for column in results]),
        columns=results,
        readings=readings(rows),
        first=measures[0],
        best=measures[0].best if len({measure.higher for measure in measures}) == 1 else "best",
        of_accuracy=all(measure.name == "accuracy" for measure in measures),
        target=None if target is None else measures[0].told(target),
        costs=costs(rows, target) if target is not None else [],
        seeds=max(len(row.runs) for row in rows),
        unbeaten=unbeaten(measures),
        sections=sections(rows),
        svg=lambda figure, alt: Markup(_svg(figure, alt, f"f{next(svgs)}")),
        settings=_settings(rows, "config"),
        resolved=_settings(rows, "resolved"),
        versions=_settings(rows, "versions"),
        notes=_notes(rows),
        folders=[[str(run.path) for run in row.runs] for row in rows],
    )


def _title(rows: list[Runs]) -> str:
    algorithms = dict.fromkeys(str(row.config.get("algorithm", row.name)) for row in rows)
    data = dict.fromkeys(str(row.config["data"]) for row in rows if "data" in row.config)
    kinds = "algorithms" if len(algorithms) == len(rows) else "runs"
    what = next(iter(algorithms)) if len(algorithms) == 1 else f"{len(rows)} {kinds}"
    return f"{what} on {', '.join(data)}" if data else what


def _lead(rows: list[Runs]) -> str:
    config, apart = rows[0].config, differing(rows)
    share = float(config.get("cohort", 2)) <= 1
    config = config | {"cohort": f"{float(config['cohort']):.0%}"} if share else config
    phrases = {"split": "split {}", "clients": "{} clients", "cohort": "{} a round", "rounds": "{} rounds"}
    facts = [text.format(_text(config[key])) for key, text in phrases.items() if key in config and key not in apart]
    seeds = {len(row.runs) for row in rows}
    facts = ["1 round" if fact == "1 rounds" else fact for fact in facts]
    if seeds != {1}:
        facts.append(f"{min(seeds)} seeds" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)} seeds")
    said = ", ".join(facts)
    sentences = [f"{said[0].upper()}{said[1:]}."] if said else []
    first = measured(rows)[0]
    ends = [(value, row) for row in rows if (value := row.over(lambda run: run.last(f"global_{first.name}")))]
    ends = [(value, row) for value, row in ends if math.isfinite(value.mean)]
    if len(rows) == 1 and ends:
        sentences.append(f"Global {first.title} at the end: {with_unit(ends[0][0], first.unit)}.")
    elif ends:
        value, row = (max if first.higher else min)(ends, key=lambda end: end[0].mean)
        best = f"{first.best.capitalize()} global {first.title} at the end"
        sentences.append(f"{best}: {row.name}, {with_unit(value, first.unit)}.")
    return " ".join(sentences)


def _notes(rows: list[Runs]) -> list[str]:
    """What a reader should know before trusting a number: incomplete runs, non-finite values, lost work."""
    runs = [(row.name if len(row.runs) == 1 else f"{row.name}, {_seed(run)}", run) for row in rows for run in row.runs]
    notes = []
    for who, run in runs:
        if run.lost:
            notes.append(f"{who}: {run.lost}.")
        done, asked = run.metrics[-1]["round"], run.config.get("rounds")
        if isinstance(asked, int) and done < asked:
            stopped = run.resolved.get("stopped") == str(done)
            notes.append(f"{who}: {done} of {asked} rounds are done{', as it was stopped there' if stopped else ''}.")
        for key in ("train_loss", "global_loss", "divergence_all", "divergence_selected"):
            rounds, values = run.series(key)
            broken = rounds[[not math.isfinite(value) for value in values]] if len(values) else rounds
            if len(broken):
                notes.append(f"{who}: {key} is not finite in {len(broken)} rounds, first in round {broken[0]}.")
        if skipped := sum(run.series("skipped")[1]):
            notes.append(f"{who}: {skipped:.0f} messages of clients were not finite and were skipped.")
    if len(notes) > MANY:
        notes = [*notes[:MANY], f"{len(notes) - MANY} more of this kind are in the runs' metrics.jsonl."]
    return (
        notes
        + _lost(runs, "cohort", "answered", "of the clients asked answered")[:1]
        + _lost(runs, "steps", "steps_counted", "of the local steps reached the server")
    )


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


def _seed(run: Run) -> str:
    return f"seed {run.config['seed']}" if "seed" in run.config else run.path.name


def _settings(rows: list[Runs], table: str) -> Settings:
    """A table of run.toml: what all runs share, and what differs."""
    each = [row.config | {"seed": row.seeds} if table == "config" else getattr(row.runs[0], table) for row in rows]
    keys = list(dict.fromkeys(key for values in each for key in values))
    heads = [key for key in keys if len({repr(values.get(key, ...)) for values in each}) > 1]
    shared = [(key, _text(each[0][key])) for key in keys if key not in heads]
    return Settings(shared, heads, [[_text(values[key]) if key in values else "–" for key in heads] for values in each])


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "–"
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _groups(names: list[str]) -> list[tuple[str, int]]:
    return [(name, names.count(name)) for name in dict.fromkeys(names)]


def _svg(figure: Figure, alt: str, name: str) -> str:
    """A figure as inline SVG in the page's colors, with its own identifiers and a title for a screen reader."""
    import matplotlib
    from markupsafe import escape

    buffer = io.StringIO()
    with style():
        matplotlib.rcParams["svg.hashsalt"] = name
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r' id="[\w.]+_\d+"', "", text)
    text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
    text = re.sub(r"#[0-9a-f]{6}", lambda match: PAGE.get(match[0], match[0]), text)
    text = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), text)  # to 0.01 points
    opening = f'<svg role="img" aria-labelledby="{name}-alt"'
    title = f'<title id="{name}-alt">{escape(alt)}</title>'
    return re.sub(r"<svg([^>]*)>", lambda match: f"{opening}{match[1]}>{title}", text, count=1)
