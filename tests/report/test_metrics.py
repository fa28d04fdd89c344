"""The table of metrics: it knows all that is logged, and what is logged beside it is shown too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.subjects import algorithms, spelled

from apiece import federate
from apiece.report.metrics import ACCURACY, Measure, choices, numbers, others
from apiece.report.page import render
from apiece.report.records import Run, Runs
from apiece.report.table import columns

TINY = {"model": "mlp(hidden=[4])", "clients": 3, "unseen": 1, "rounds": 1, "steps": 1, "batch": 8,
    "lift": "sequential"}  # fmt: skip


# a name catches a number that it alone has measured
@pytest.mark.parametrize("name", algorithms())
def test_every_number_of_a_run_is_in_the_table_or_a_pieces_own(name):
    """Whatever an algorithm has measured of it: a key that is missing here has no heading, no curve and no column."""
    result = federate(algorithm="fedbn('*bias')" if name == "fedbn" else spelled(name), **TINY)
    pieces = {piece.stream for piece in result.experiment.federated.setup.pieces}
    found = [key for info in result.metrics for key in info]
    assert {metric.key.partition(".")[0] for metric in others(found)} <= pieces
    assert {metric.key for metric in numbers() if metric.section == "Sent" and not metric.sum_of} < set(found)


# several metrics catch a key or a choice that does not say whose it is
@pytest.mark.parametrize("measures", [(ACCURACY,), (Measure("mae", False), Measure("r2"), ACCURACY)], ids=len)
def test_each_key_and_each_choice_stands_once(measures):
    every = numbers(measures)
    assert len({metric.key for metric in every}) == len(every)
    assert all(choices(measures)[metric.choice] is metric for metric in every if metric.choice)
    assert {"global", "personal", "worst"} < set(choices(measures))
    sections = [metric.section for metric in every if metric.column]
    assert sections == sorted(sections, key=sections.index)  # a group of columns is one


def rows(**numbers: list[object]) -> list[Runs]:
    found = [dict(zip(numbers, values, strict=True)) for values in zip(*numbers.values(), strict=True)]
    return [Runs("one", (Run("one", {}, [{"round": t} | info for t, info in enumerate(found, 1)], [], Path()),))]


def test_what_pieces_and_watchers_log_has_a_curve_each():
    page = render(rows(**{"FedExP.step_size": [1.5, 1.25], "mine": [3, 4], "said": ["no", "number"]}))
    logged = page[page.index(">Logged</a></h2>") : page.index("<script")]
    assert logged.count("<figure") == 2 and "The number that FedExP returns in each round." in logged
    assert "mine, value, first to last: one 3 to 4." in logged and "said" not in logged
    assert ">Logged</a></h2>" not in render(rows(train_loss=[1.0, 0.5]))


def test_what_is_bold_is_called_by_what_was_measured():
    """A page of errors does not speak of accuracies."""
    (one,) = rows(global_mae=[0.5, 0.25])
    measured = (replace(one.runs[0], measures=(Measure("mae", False),)),)
    errors = [replace(one, name=name, runs=measured) for name in ("one", "two")]
    accuracies = [replace(row, name=name) for name in ("one", "two") for row in rows(global_accuracy=[0.5, 0.75])]
    assert "of a column of a metric the lowest is bold" in render(errors)
    assert "of a column's accuracies the highest is bold, unless all are equal." in render(accuracies)


def test_cells_are_in_the_metrics_unit():
    found = {
        c.metric.key: (c.cells, c.metric.below) for c in columns(rows(unseen_accuracy=[0.1, 0.25], seconds=[1, 3]))
    }
    assert found == {"unseen_accuracy": (["25.00"], "%"), "seconds": (["2"], "a round")}
    (sent,) = columns(rows(bytes_up=[1000, 2000], bytes_down=[0, 500]))
    assert (sent.metric.key, sent.cells) == ("bytes", ["2.5 kB"])
