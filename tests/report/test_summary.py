"""The sentences with which a report begins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from apiece import NEVER, Period, algorithm
from apiece.report.metrics import ACCURACY, Measure
from apiece.report.records import Run, Runs
from apiece.report.summary import facts, summary, title


def row(name: str, *ends: float, of: Measure = ACCURACY, **more: float) -> Runs:
    lines = [{"round": 1, f"global_{of.name}": end, "bytes_up": 100, "bytes_down": 50, **more} for end in ends]
    runs = [
        Run(name, {"algorithm": name, "seed": i}, [line], [], Path(), measures=(of,)) for i, line in enumerate(lines)
    ]
    return Runs(name, tuple(runs))


def test_a_reference_row_is_never_the_best():
    (best, sent) = summary([row("centralized", 0.9), row("one", 0.5), row("two", 0.7)])
    assert best.startswith("two ends with the highest global accuracy, 70.00 %: 20 percentage points above one")
    assert "(one seed, so the spread is unknown)" in best and sent == "two sent 150 B both ways in 1 round."


def test_the_lead_is_told_with_the_spread_of_seeds():
    assert "beyond the spread of 3 seeds" in summary([row("one", 0.5, 0.51, 0.52), row("two", 0.7, 0.71, 0.72)])[0]
    assert "within the spread of 3 seeds" in summary([row("one", 0.5, 0.7, 0.9), row("two", 0.6, 0.71, 0.9)])[0]


def test_an_error_is_best_where_it_is_lowest_and_is_no_accuracy():
    said = " ".join(summary([row("one", 0.5, of=Measure("mae", False)), row("two", 0.25, of=Measure("mae", False))]))
    assert said.startswith("two ends with the lowest global mean absolute error, 0.25: 0.25 below one")
    assert "accuracy" not in said


def test_drift_names_the_furthest_and_the_nearest():
    drifted = summary([row("one", 0.5, divergence_all=2.0), row("two", 0.7, divergence_all=0.5)])[-1]
    assert "furthest from the server's with one, to a divergence of 2, and least with two, 0.5." in drifted


def test_rows_that_tie_are_all_named():
    rows = [row(name, 0.5, divergence_all=far) for name, far in (("one", 2.0), ("two", 2.0), ("three", 0.5))]
    assert "from the server's with one and two, to a divergence of 2, and least with three" in summary(rows)[-1]
    told = lambda names: summary([row(name, 0.5) for name in names.split()])[0]
    assert told("one two").startswith("one and two end with the same global accuracy, 50.00 %")
    assert told("one two three").startswith("one, two and three end with the same")
    assert told("one two three four").startswith("one, two, three and 1 other end with the same")
    assert told("one two three four five").startswith("one, two, three and 2 others end with the same")


def test_clients_who_are_better_alone_are_not_passed_over():
    alone = row("local", 0.3, personal_accuracy_mean=0.95)
    told = lambda *rows: summary([row("one", 0.5, personal_accuracy_mean=0.9), *rows])[0]
    assert told(alone).endswith(
        "; clients alone (local) are better than all of these, with a personal accuracy of 95.00 %: 5 percentage "
        "points above one (one seed, so the spread is unknown)."
    )
    assert "alone" not in told(row("two", 0.4, personal_accuracy_mean=0.96), alone)
    assert "alone" not in told(row("local", 0.3, personal_accuracy_mean=0.9))
    assert "alone" not in told(row("local", 0.3))


def test_a_title_says_own_data():
    run = Run("one", {"algorithm": "one", "data": "your own"}, [], [], Path())
    assert title([Runs("one", (run,))]) == "one on your own data"


def test_a_title_has_the_name_of_a_file_and_not_its_path():
    for path in ("/home/ann/patients.csv", r"C:\ann\patients.csv", "/home/ann/patients.csv/"):
        run = Run("one", {"algorithm": "one", "data": path}, [], [], Path())
        assert title([Runs("one", (run,))]) == "one on patients.csv"


@pytest.mark.parametrize(
    ("cohort", "said"), [(1, "1 client a round"), (3, "3 clients a round"), (0.25, "25% of the clients a round")]
)
def test_a_whole_number_of_clients_is_no_share(cohort, said):
    run = Run("one", {"algorithm": "one", "clients": 9, "cohort": cohort, "rounds": 1}, [], [], Path())
    assert facts([Runs("one", (run,))]) == f"9 clients, {said}, 1 round."


def personal(name: str, *ends: float, **more: float) -> Runs:
    """A row whose head is personal."""
    known = {"algorithm": repr(algorithm(Period("head", NEVER), name=name))}
    made = row(name, *ends, **more)
    return Runs(name, tuple(replace(run, resolved=known) for run in made.runs))


def test_a_virtual_global_model_never_leads():
    own = personal("own", 0.9, personal_accuracy_mean=0.8)
    told = summary([own, row("one", 0.5, personal_accuracy_mean=0.6), row("two", 0.7, personal_accuracy_mean=0.5)])[0]
    assert told.startswith("two ends with the highest global accuracy, 70.00 %: 20 percentage points above one")
    assert "; own has the highest personal accuracy, 80.00 %: 20 percentage points above one" in told


def test_without_a_global_model_the_personal_metric_is_told():
    rows = [personal("own", 0.5, personal_accuracy_mean=0.8), personal("too", 0.7, personal_accuracy_mean=0.6)]
    told = summary(rows)
    assert told[0].startswith("own ends with the highest personal accuracy, 80.00 %: 20 percentage points above too")
    assert "global" not in " ".join(told) and told[1].startswith("own sent")


def test_the_personal_lead_is_told_with_the_spread_of_seeds():
    def of(name: str, *ends: float) -> Runs:
        runs = [row(name, 0.5 if name == "one" else 0.7, personal_accuracy_mean=end).runs[0] for end in ends]
        return Runs(name, tuple(runs))

    told = summary([of("one", 0.5, 0.51, 0.52), of("two", 0.7, 0.71, 0.72)])[0]
    assert "; it also has the highest personal accuracy, 71.00 ± 1.00 %: 20 percentage points above one" in told
    assert told.endswith("beyond the spread of 3 seeds.")
    assert summary([of("one", 0.5, 0.7, 0.9), of("two", 0.6, 0.71, 0.9)])[0].endswith("within the spread of 3 seeds.")
