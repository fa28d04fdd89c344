"""The sections of a report, in their order: what was reached, what it cost, what drifted, who has what, the split."""

from __future__ import annotations

from apiece.report.charts import Rounds
from apiece.report.curves import consensus, curves
from apiece.report.drawing import series, style
from apiece.report.fairness import by_client, fairness
from apiece.report.fairness import table as fairness_table
from apiece.report.metrics import by_key, capital, others
from apiece.report.panels import Section
from apiece.report.records import measured
from apiece.report.splits import observed, splits
from apiece.report.table import comparable, costs, default_target

TARGET = "(about 5 % worse than what the median row reached; apiece compare --target takes another)"


def sections(rounds: Rounds, target: float | None = None) -> list[Section]:
    """Every figure and table for which the rows have metrics; `target` is that of the table of costs, by default one
    that the median row reaches.
    """
    rows = rounds.rows
    with style():
        legend = series(row.name for row in rows) if len(rows) > 1 else []
        layers, by_layer = consensus(rounds)
        keys = (key for run in rounds.runs for line in run.metrics for key in line)
        measures, shown = measured(rows), [*comparable(rows), *others(keys, measured(rows))]
        first = measures[0]

        def over_rounds(section: str) -> Section:
            return Section(section, legend, [*curves(rounds, (m for m in shown if m.section == section and m.axis))])

        costed = (by_key(measures)[key] for key in (f"global_{first.name}", f"personal_{first.name}_mean"))
        usual = default_target(rows) if target is None and len(rows) > 1 else None
        wanted = usual if target is None else target
        to_it = costs(rows, wanted) if wanted is not None else []
        about = f"Cost of reaching {first.told(wanted)} global {first.title}" if wanted is not None else ""
        about += f" {TARGET}" if usual is not None else ""
        each = f"{capital(first.title)} of each client on its own test set"
        made = [
            *(over_rounds(capital(measure.title)) for measure in measures),
            over_rounds("Loss"),
            Section("Cost", legend, [*curves(rounds, costed, "bytes")], [(about, to_it)]),
            over_rounds("Drift"),
            Section("Consensus by layer", layers, by_layer, of="layers"),
            Section("Fairness", legend, [*fairness(rows)], [("", fairness_table(rows)), (each, by_client(rows))]),
            Section("Split", [], [*splits(rows)]),
            over_rounds("Logged"),
            Section("Observed", [], [*observed(rows)]),
        ]
    made = [section._replace(tables=[(title, table) for title, table in section.tables if table]) for section in made]
    return [section for section in made if section.panels or section.tables]
