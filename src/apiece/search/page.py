"""What a search leaves: tune.md, tune.png, the best settings as a file for `apiece run --config`, and a value for
programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from apiece.config.located import placed
from apiece.config.settings import Config
from apiece.config.tables import from_table, to_table
from apiece.experiment.folders import named_after
from apiece.report.drawing import COLORS, INK, style
from apiece.report.metrics import Number
from apiece.report.records import spread
from apiece.report.terminal import Fitting
from apiece.report.text import cell, markdown, short
from apiece.search import trials
from apiece.search.ranges import Space, told
from apiece.search.rungs import Budget, Rung
from apiece.search.trials import Tried
from apiece.system.files import atomic_write

if TYPE_CHECKING:
    from rich.table import Table

PAGE, FIGURE, BEST = "tune.md", "tune.png", "best.toml"


class Tuned(NamedTuple):
    """A search that has ended: the best trial of each algorithm, and every trial at the last rung that it reached."""

    out: Path
    best: dict[str, Tried]
    reached: list[Tried]
    spaces: Mapping[str, Space]
    rungs: Sequence[Rung]
    budget: Budget
    number: Number
    config: Config
    own: Sequence[str] = ()  # what a program gave as objects, which no settings hold

    @classmethod
    def of(
        cls, out: Path, lines: Sequence[Tried], spaces: Mapping[str, Space], rungs: Sequence[Rung], budget: Budget,
        number: Number, config: Config, own: Sequence[str],
    ) -> Tuned:  # fmt: skip
        """The best of those that reached the last rung at which any trial has a value."""
        here = [one for one in lines if one.algorithm in spaces]
        last = {(one.algorithm, one.trial): one for one in here}
        found = {}
        for name in spaces:
            whole = [one for one in last.values() if one.algorithm == name and one.rung == rungs[-1].at]
            if first := trials.best(whole, 1, number.higher):
                found[name] = first[0]
        return cls(out, found, list(last.values()), spaces, rungs, budget, number, config, own)

    def settings(self, algorithm: str | None = None) -> dict[str, Any]:
        """The settings to run with: those of the search with the best values, for `federate(**settings)`, to which a
        program adds its own objects.
        """
        name = algorithm or self.first
        changed = {"algorithm": name} | self.spaces[name].settings(self.best[name].values)
        table = to_table(placed(from_table(to_table(replace(self.config, out=None)) | changed, "tune")))
        return {name: value for name, value in table.items() if name not in self.own}

    @property
    def first(self) -> str:
        """The algorithm whose best trial is the best of all."""
        return trials.best(list(self.best.values()), 1, self.number.higher)[0].algorithm

    @property
    def unspent(self) -> str:
        """A sentence if runs had all their rounds before they had spent the budget; "" if they had not."""
        names = [name for name, one in self.best.items() if self.budget.bytes and max(one.bytes) < self.rungs[-1].at]
        said = f"had all {self.config.rounds} rounds before they had sent {self.budget.told(self.budget.most)}"
        return f"Runs of {', '.join(names)} {said}: more --rounds would use the budget." if names else ""

    def __repr__(self) -> str:
        return f"Tuned({ {name: told(one.values) for name, one in self.best.items()} }, out={str(self.out)!r})"

    def files(self) -> list[Path]:
        """What was written."""
        several = [self.out / _file(name) for name in self.best] if len(self.spaces) > 1 else []
        return [self.out / BEST, *several, self.out / PAGE, self.out / FIGURE]

    def table(self) -> Fitting:
        """The best of each algorithm, for a terminal."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        settings = {name: [f"  {told({k: v})}" for k, v in one.values.items()] for name, one in self.best.items()}
        words = [len(word) for name, lines in settings.items() for word in (*name.split(), *lines)]
        headings, cells = self._rows()[0][2:], list(map(self._cells, self.best.values()))
        widths = [max(map(len, (*name.split(), *column))) for name, *column in zip(headings, *cells, strict=True)]

        def table(places: list[int]) -> Table:
            made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
            made.add_column("algorithm,\nand its best settings", overflow="fold")
            for place in places:
                heading = Text("\n".join(wrap(headings[place], widths[place])))
                made.add_column(heading, justify="right", vertical="top", no_wrap=True)
            for (name, lines), row in zip(settings.items(), cells, strict=True):
                made.add_row(Text("\n".join((name, *lines))), *(Text(row[place]) for place in places))
            return made

        return Fitting(max(words), widths, table)

    def for_programs(self) -> list[dict[str, Any]]:
        """Every trial as JSON: its values, the metric over its seeds, what it spent, and whether it is the best."""
        from apiece.report.for_programs import spread_for_programs

        return [
            {"algorithm": one.algorithm, "trial": one.trial + 1, "values": one.values, "failed": one.failed}
            | {"metric": self.number.key} | spread_for_programs(None if one.failed else spread(one.found))
            | {"rounds": max(one.rounds, default=0), "bytes": max(one.bytes, default=0)}
            | {"best": one == self.best.get(one.algorithm)}
            for one in self.reached
        ]  # fmt: skip

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        unit = f" {self.number.unit}" if self.number.unit else ""
        headings = ["algorithm", "best settings", f"{self.number.heading}{unit}, held-out", "trial", "rounds", "sent"]
        return headings, [[f"`{name}`", f"`{told(one.values)}`", *self._cells(one)] for name, one in self.best.items()]

    def _cells(self, one: Tried) -> list[str]:
        found = None if one.failed else spread(one.found)
        value = cell(found, self.number.unit) if found else "–"
        rounds, sent = max(one.rounds, default=0), max(one.bytes, default=0)
        return [value, str(one.trial + 1), str(rounds), short(sent, "B")]

    def written(self, over: str, seeds: Sequence[int], reduction: int) -> Tuned:
        """Write everything, and give the search back."""
        import tomli_w

        for name in self.best:
            text = f"# The best of {self.rungs[0].trials} trials of {name} over {over}.\n"
            if self.own:
                text += f"# They need the program's own {', '.join(self.own)}: give these to apiece.federate, too.\n"
            content = (text + tomli_w.dumps(self.settings(name))).encode()
            if name == self.first:
                atomic_write(self.out / BEST, content)
            if len(self.spaces) > 1:
                atomic_write(self.out / _file(name), content)
        self._draw(self.out / FIGURE)
        atomic_write(self.out / PAGE, self._page(over, seeds, reduction).encode())
        return self

    def _page(self, over: str, seeds: Sequence[int], reduction: int) -> str:
        order = {rung.at: place for place, rung in enumerate(self.rungs)}
        parts = [f"# {self.number.heading} on held-out samples\n", f"Searched: `{over}`. "
                 f"Each trial is the mean over the seeds {', '.join(map(str, seeds))}. All values are measured on "
                 "samples that were held out from training; the test set was not used.\n"]  # fmt: skip
        each = ((rung.trials, self.budget.told(rung.at)) for rung in self.rungs)
        ladder = "; ".join(f"{many} trial{'s' if many > 1 else ''} to {end}" for many, end in each)
        pruned = f" At each rung the best one in {reduction} went on." if len(self.rungs) > 1 else ""
        parts.append(f"Every algorithm got the same: {ladder}.{pruned}\n")
        if short_of := self.unspent:
            parts.append(f"{short_of}\n")
        parts += [markdown(*self._rows()), f"\n![Every trial]({FIGURE})\n"]
        for name in self.spaces:
            own = [one for one in self.reached if one.algorithm == name]
            ranked = trials.best(own, len(own), self.number.higher)
            ranked = sorted([*ranked, *(one for one in own if one not in ranked)], key=lambda one: -order[one.rung])
            headings = ["settings", *self._rows()[0][2:]]
            rows = [[f"`{told(one.values)}`", *self._cells(one)] for one in ranked]
            parts += [f"## {name}\n", markdown(headings, rows) + "\n"]
            parts += [f"Trial {one.trial + 1} failed: {one.failed}\n" for one in own if one.failed]
        run, beside = f"apiece run --config {self.out / BEST} --out FOLDER", ""
        if self.own:
            run = f"apiece.federate(**found.settings(), {', '.join(f'{name}=...' for name in self.own)})"
            beside = f" They need the program's own {', '.join(self.own)}, which no file holds."
        parts.append(f"The best settings: `{run}` measures them on the test set.{beside}\n")
        return "\n".join(parts)

    def _draw(self, path: Path) -> None:
        """One panel for each name: the metric over its values; filled where a trial reached the whole budget."""
        from io import BytesIO

        from matplotlib.figure import Figure

        names = list(dict.fromkeys(name for space in self.spaces.values() for name in space.ranges))
        with style():
            figure = Figure(figsize=(3.6 * len(names), 3.2), layout="constrained", facecolor="white")
            panels = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
            for axes, name in zip(panels, names, strict=True):
                self._panel(axes, name)
            unit = f", {self.number.unit}" if self.number.unit else ""
            panels[0].set_ylabel(f"held-out {self.number.axis}{unit}")
            marks, labels = panels[0].get_legend_handles_labels()
            figure.legend(marks, labels, loc="outside lower center", ncols=3, frameon=False)
            content = BytesIO()
            figure.savefig(content, format="png", dpi=150, metadata={"Software": None})
        atomic_write(path, content.getvalue())

    def _panel(self, axes: Any, name: str) -> None:
        from matplotlib.ticker import FuncFormatter, NullFormatter

        for color, (algorithm, space) in zip(COLORS * len(self.spaces), self.spaces.items()):
            own = [
                one
                for one in self.reached
                if one.algorithm == algorithm and name in one.values and one.mean == one.mean
            ]
            whole = [one.rung == self.rungs[-1].at for one in own]
            for filled in (True, False):
                shown = [one for one, full in zip(own, whole, strict=True) if full == filled]
                label = algorithm if filled else f"{algorithm}, stopped at a rung"
                values = [one.values[name] for one in shown]
                x = [str(v) if isinstance(v, str | bool | None) else v for v in values]
                y = [self.number.scale * one.mean for one in shown]
                axes.scatter(x, y, s=26, label=label, facecolors=color if filled else "none", edgecolors=color)
            if name in space.ranges and space.ranges[name].log:
                axes.set_xscale("log")
                axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(name, color=INK)


def _file(name: str) -> str:
    return f"best-{named_after(name)}.toml"
