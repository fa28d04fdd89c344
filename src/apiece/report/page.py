"""One page of tables and figures for one run or several: a single HTML file that needs no other file.

The page is whole without its script, which draws the figures anew with values under the pointer (`templates/`).
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from apiece.errors import UserError
from apiece.report.charts import Rounds
from apiece.report.drawing import variable
from apiece.report.figures import sections
from apiece.report.grid_table import Grid
from apiece.report.metrics import refuse_target
from apiece.report.notes import notes
from apiece.report.records import Runs, measured
from apiece.report.results import read_runs
from apiece.report.summary import as_text, facts, summary, title
from apiece.report.svg import inline
from apiece.report.table import IS_BOLD, VIRTUAL, bold, columns, differences, readings, seeds
from apiece.system.files import atomic_write

TEMPLATES = Path(__file__).with_name("templates")
OTHERS = (".pdf", ".svg", ".png", ".csv", ".json", ".md", ".txt", ".tex", ".xlsx")  # files that no page is
EVERY = 5  # seconds after which a live page looks for news
SCRIPTS = ("chart.js", "drawing.js", "reading.js", "saving.js", "page.js")  # in the order in which the page has them


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
    page = place_of(out)
    text = page_of([folders] if isinstance(folders, str | Path) else folders, target)
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(page, text.encode())
    except OSError as error:
        raise UserError(f"{page} cannot be written ({error.strerror}): name another file or folder.") from error
    return page


def place_of(out: str | Path) -> Path:
    """The page's path, for an .html file or a folder. UserError for a file of another kind."""
    out = Path(out)
    if out.suffix.lower() in OTHERS and not out.is_dir():
        raise UserError(
            f"out={str(out)!r} is no page: name an .html file or a folder; `apiece figure RUN --out {out.stem}.pdf` "
            "draws a figure, and `apiece compare RUN --json` prints the numbers."
        )
    return out if out.suffix.lower() in (".html", ".htm") else out / "report.html"


def page_of(folders: Iterable[str | Path], target: float | None = None, live: str = "") -> str:
    """The page of run folders and grids as text; with `live` it looks for news of its server."""
    grids, runs = [], []
    for folder in folders:
        grid = Grid.kept(Path(folder))
        grids += [grid] if grid else []
        runs += [Path(folder) / name for name in grid.folders] if grid and grid.folders else [folder]
    return render(read_runs(runs), target, grids, live)


def render(rows: list[Runs], target: float | None = None, grids: Sequence[Grid] = (), live: str = "") -> str:
    """The page as text."""
    from markupsafe import Markup

    measures = measured(rows)
    refuse_target(target, measures[0].unit)
    rounds, results, numbers = Rounds(rows), columns(rows), count(1)
    made = sections(rounds, target)
    shown = [
        (section, anchor, [(f"f{next(numbers)}", panel) for panel in section.panels])
        for section, anchor in zip(made, anchors(section.title for section in made), strict=True)
    ]
    charts = {name: panel.chart for *_, panels in shown for name, panel in panels if panel.chart}
    return template(
        "report.html",
        title=title(rows),
        facts=facts(rows),
        summary=summary(rows),
        grids=grids,
        names=[row.name for row in rows],
        groups=_groups([column.metric.section for column in results]),
        columns=results,
        readings=readings(rows),
        differences=differences(rows),
        first=measures[0],
        of_accuracy=all(measure.name == "accuracy" for measure in measures),
        seeds=seeds(rows),
        bold=f"{bold(rows)} {IS_BOLD}",
        virtual=VIRTUAL,
        sections=shown,
        svg=lambda name, panel: Markup(inline(panel.figure, panel.alt, name)),
        settings=_settings(rows, "config"),
        resolved=_settings(rows, "resolved"),
        versions=_settings(rows, "versions"),
        notes=notes(rows),
        thinned=rounds.thinned,
        folders=[[str(run.path) for run in row.runs] for row in rows],
        data=as_json({"runs": rounds.axes(), "charts": charts}),
        live=live,
        every=EVERY,
    )


def anchors(titles: Iterable[str]) -> list[str]:
    """What stands after the # of a permanent link to each section: the words of its title, each link once."""
    found = {"grid", "results", "settings", "data"}
    made = []
    for text in titles:
        words = "-".join("".join(c if c.isalnum() and c.isascii() else " " for c in text.lower()).split()) or "section"
        names = (words if n == 1 else f"{words}-{n}" for n in count(1))
        made.append(next(name for name in names if name not in found))
        found.add(made[-1])
    return made


def template(name: str, **words: Any) -> str:
    """A page of `templates`, with its style and its script; only that script may run on it."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    page = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page.filters["page_color"] = variable
    digest = b64encode(sha256(script().encode()).digest()).decode()
    style = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    return page.get_template(name).render(style=Markup(style), script=Markup(script()), digest=digest, **words)


def as_json(values: Any) -> Any:
    """Values as JSON that cannot end the element of the page in which it stands."""
    from markupsafe import Markup

    text = json.dumps(values, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


@cache
def script() -> str:
    """The page's script: one function, so that it shares no name with anything else."""
    parts = "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}\n}})();'


def _settings(rows: list[Runs], table: str) -> Settings:
    """A table of run.toml: what all runs share, and what differs."""
    each = [row.config | {"seed": row.seeds} if table == "config" else getattr(row.runs[0], table) for row in rows]
    keys = list(dict.fromkeys(key for values in each for key in values))
    heads = [key for key in keys if len({repr(values.get(key, ...)) for values in each}) > 1]
    shared = [(key, as_text(each[0][key])) for key in keys if key not in heads]
    return Settings(
        shared, heads, [[as_text(values[key]) if key in values else "–" for key in heads] for values in each]
    )


def _groups(names: list[str]) -> list[tuple[str, int]]:
    return [(name, names.count(name)) for name in dict.fromkeys(names)]
