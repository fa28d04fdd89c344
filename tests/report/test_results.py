"""Reading run folders, and the values that are derived from raw metrics."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import ttest_ind_from_stats

from apiece import NEVER, Period, algorithm
from apiece.errors import UserError
from apiece.report.notes import notes
from apiece.report.page import render
from apiece.report.records import Run, Runs, Spread, below, best, measured, moving_average, spread
from apiece.report.results import begun, read_run, read_runs, unlike
from apiece.report.table import (
    columns,
    compare,
    costs,
    default_target,
    differences,
    for_programs,
    left_out,
    summary,
    unbeaten,
)
from apiece.report.text import short

LINE = '{{"round": {}, "global_accuracy": {}, "bytes_up": {}, "bytes_down": {}, "seconds": 2.0}}'


def write(folder: Path, accuracies: list[float], algorithm: str = "fedavg", **config: object) -> Path:
    folder.mkdir(parents=True)
    settings = {"algorithm": algorithm, "data": "digits", "rounds": len(accuracies), **config}
    body = "\n".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())
    (folder / "run.toml").write_text(f'[config]\n{body}\n[versions]\ntorch = "2"\n[resolved]\nparameters = 7\n')
    lines = [LINE.format(t, a, 10 * t, 5 * t) for t, a in enumerate(accuracies, start=1)]
    (folder / "metrics.jsonl").write_text("\n".join(lines).replace("nan", "NaN") + "\n")
    return folder


def run_of(values: list[float], key: str = "global_accuracy") -> Run:
    metrics = [{"round": t, key: v} for t, v in enumerate(values, start=1)]
    return Run("r", {}, metrics, [], Path())


@pytest.mark.parametrize("width", [46, 50, 64, 80, 120])
@pytest.mark.parametrize("name", ["p", "a" * 60])
def test_no_number_of_a_table_is_cut_however_narrow_the_terminal(tmp_path: Path, width: int, name: str) -> None:
    for seed, value in enumerate((0.5123, 0.7234, 0.9345)):
        write(tmp_path / "runs" / f"seed-{seed}", [0.0, value], algorithm=name, seed=seed)
    (row,) = read_runs(tmp_path / "runs")
    told = io.StringIO()
    Console(file=told, width=width).print(summary([row, replace(row, name=f"{name}2")]))
    cells = [cell for column in columns([row]) if not column.metric.on_page_alone for cell in column.cells]
    assert cells and all(told.getvalue().count(cell) >= 2 for cell in cells), told.getvalue()
    assert max(map(len, told.getvalue().splitlines())) <= width


def test_differences_are_taken_seed_by_seed(tmp_path: Path) -> None:
    """Seeds that differ much hide what two rows differ in, and their differences do not."""
    for name, values in {"fedavg": {0: 0.5, 1: 0.7, 2: 0.9}, "scaffold": {0: 0.52, 1: 0.73, 5: 0.1}}.items():
        for seed, value in values.items():
            write(tmp_path / name / f"seed-{seed}", [0.0, value], algorithm=name, seed=seed)
    rows = read_runs([tmp_path / "fedavg", tmp_path / "scaffold"])
    (column,) = differences(rows)
    assert column.cells == ["–", "2.50 ± 0.71"] and not column.best  # seed 5 has no partner
    assert "Differences to fedavg, seed by seed" in render(rows)
    alone = read_runs([tmp_path / "fedavg" / "seed-0", tmp_path / "scaffold" / "seed-0"])
    assert differences(alone) == differences(rows[:1]) == [] and "seed by seed" not in render(alone)


def test_a_folder_is_read_as_it_lies(tmp_path: Path) -> None:
    run = read_run(write(tmp_path / "a", [0.1, 0.2], seed=3))
    assert (run.name, run.config["seed"], run.versions, run.resolved) == (
        "fedavg",
        3,
        {"torch": "2"},
        {"parameters": 7},
    )
    assert run.metrics[1]["bytes_up"] == 20 and run.clients == []
    assert run.last("bytes") == 30


def test_derived_values_by_hand() -> None:
    run = run_of([0.1, 0.6, 0.4, 0.5])
    assert (run.last("global_accuracy"), run.best("global_accuracy")) == (0.5, 0.6)
    assert run.mean_of_last("global_accuracy", 2) == pytest.approx(0.45)
    # window 2: 0.35, 0.5, 0.45; of the last two the larger is 0.5, of the last one 0.45
    assert run.smoothed("global_accuracy", window=2, last=2) == pytest.approx(0.5)
    assert run.smoothed("global_accuracy", window=2, last=1) == pytest.approx(0.45)
    assert run_of([3.0, 1.0, 2.0], "global_loss").best("global_loss") == 1.0
    assert (
        run.last("personal_accuracy_mean") is None and run.best("nothing") is None and run.smoothed("nothing") is None
    )


def test_smoothing_takes_the_last_fifty_averages_only() -> None:
    values = [1.0] * 5 + [0.0] * 54  # the averages of the first rounds are high, but more than fifty averages ago
    assert run_of(values).smoothed("global_accuracy") == pytest.approx(0.0)
    assert run_of(values[:50]).smoothed("global_accuracy") == pytest.approx(1.0)


@pytest.mark.parametrize("length", [1, 3, 5, 8])
def test_moving_average_of_a_constant_is_the_constant(length: int) -> None:
    assert np.allclose(moving_average(np.full(length, 0.3)), 0.3)


def test_target_costs_count_up_to_the_round_that_reached_it(tmp_path: Path) -> None:
    run = read_run(write(tmp_path / "a", [0.1, 0.4, 0.3, 0.6]))
    assert run.to_target(0.4) == (2, 30, 4.0)
    assert run.to_target(0.5) == (4, 60, 8.0)
    assert run.to_target(0.7) is None


def test_spread_is_the_sample_deviation() -> None:
    assert spread([1.0, 3.0]) == Spread(2.0, math.sqrt(2), 2)
    assert spread([5.0]) == Spread(5.0, 0.0, 1) and spread([None]) is None
    assert spread([0.1 + 0.2, 0.3]).sd == 0.0 < spread([0.3, 0.3001]).sd  # equal but for the last bit
    assert math.isnan(spread([1.0, math.nan]).mean)  # a seed that diverged is not averaged away


def test_seeds_share_a_row_and_other_settings_do_not(tmp_path: Path) -> None:
    for seed in (0, 1, 10):
        write(tmp_path / "a" / f"seed-{seed}", [0.1, 0.5 + seed / 10], seed=seed)
    write(tmp_path / "b", [0.1, 0.4], seed=0, lr=0.5)
    write(tmp_path / "c", [0.1, 0.4], seed=0, algorithm="scaffold")
    rows = read_runs([tmp_path / "a", tmp_path / "b", tmp_path / "c", tmp_path / "b"])
    assert [len(row.runs) for row in rows] == [3, 1, 1]
    assert rows[0].seeds == [0, 1, 10]
    assert [row.name for row in rows] == ["fedavg", "fedavg, lr 0.5", "scaffold"]
    last = rows[0].over(lambda run: run.last("global_accuracy"))
    assert last is not None and last.mean == pytest.approx((0.5 + 0.6 + 1.5) / 3) and last.seeds == 3
    assert [row.name for row in read_runs(tmp_path)] == [row.name for row in rows]


def test_the_same_seed_again_is_another_row(tmp_path: Path) -> None:
    rows = read_runs([write(tmp_path / "a", [0.1], seed=0), write(tmp_path / "b", [0.2], seed=0)])
    assert [len(row.runs) for row in rows] == [1, 1]
    assert rows[0].name != rows[1].name and str(tmp_path / "b") in rows[1].name


def test_a_curve_has_the_rounds_that_all_seeds_measured(tmp_path: Path) -> None:
    write(tmp_path / "a" / "seed-0", [0.1, 0.2, 0.3], rounds=3, seed=0)
    write(tmp_path / "a" / "seed-1", [0.3, 0.4], rounds=3, seed=1)
    (row,) = read_runs(tmp_path / "a")
    curve = row.curve("global_accuracy")
    assert curve is not None and curve.x.tolist() == [1, 2] and curve.mean == pytest.approx([0.2, 0.3])
    assert curve.sd == pytest.approx([math.sqrt(0.02)] * 2)
    sent = row.curve("global_accuracy", against="bytes")
    assert sent is not None and sent.x.tolist() == [15, 30]
    assert row.curve("consensus/conv1") is None


def test_a_torn_last_line_is_dropped_and_a_repeated_round_counts_once(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", [0.1, 0.2])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"round": 2, "global_accuracy": 0.9}\n{"round": 3, "glo')
    assert read_run(folder).series("global_accuracy")[1].tolist() == [0.1, 0.9]


def rows_of(*runs: tuple[dict[str, Any], str]) -> list[Runs]:
    """A row for each pair of settings and the fingerprint of its data."""
    own = [replace(run_of([0.5]), config={"seed": 0} | config, resolved={"data": data}) for config, data in runs]
    return [Runs(f"row {place}", (run,)) for place, run in enumerate(own)]


def test_runs_that_cannot_be_compared_are_told_by_what_differs() -> None:
    same = {"data": "t.csv", "eval_every": 1}
    assert unlike(rows_of((same, "aa"), (same | {"algorithm": "scaffold"}, "aa"))) == ""
    assert unlike(rows_of((same, "aa"), (same | {"seed": 1}, "bb"))) == "", "another seed divides samples otherwise"
    assert unlike(rows_of((same, ""), (same, "aa"))) == "", "data that are made on demand have no fingerprint"
    edited = unlike(rows_of((same, "aa"), (same, "bb")))
    assert edited == "these runs differ in their samples: a difference in their numbers is not the algorithm's."
    assert unlike(rows_of((same, "aa"), (same | {"data": "u.csv"}, "bb"))).startswith("these runs differ in data: ")
    both = unlike(rows_of((same, "aa"), (same | {"eval_every": 5}, "bb")))
    rounds = "hese runs were measured every 1 and 5 rounds: compare the last values, and not the best, the means over "
    assert both == f"{edited} T{rounds}rounds, or the costs to reach a value."
    assert unlike(rows_of((same, "aa"), (same | {"eval_every": 5}, "aa"))).startswith(f"t{rounds}")


def test_nan_is_kept(tmp_path: Path) -> None:
    run = read_run(write(tmp_path / "a", [0.1, math.nan]))
    assert math.isnan(run.last("global_accuracy") or 0) and run.best("global_accuracy") == 0.1
    (column, *_) = columns(read_runs(tmp_path / "a"))
    assert column.cells == ["NaN"]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: (f / "run.toml").unlink(), "has no run.toml"),
        (lambda f: (f / "run.toml").write_text("[config"), "no TOML"),
        (lambda f: (f / "run.toml").write_text(""), "run.toml has no settings: put the file back"),
        (lambda f: (f / "metrics.jsonl").write_text(""), "no finished round"),
        (lambda f: (f / "metrics.jsonl").unlink(), "no finished round"),
        (lambda f: (f / "metrics.jsonl").write_text('oops\n{"round": 1}\n'), "line 1"),
        (lambda f: (f / "metrics.jsonl").write_text('[1]\n{"round": 1}\n'), "line 1"),
        (lambda f: (f / "clients.json").write_text("{"), "not JSON"),
        (lambda f: (f / "clients.json").write_text('{"a": 1}'), "not a list"),
        (lambda f: (f / "clients.json").write_text('[{"counts": [1, "x"]}]'), "not a list of clients"),
        (lambda f: (f / "clients.json").write_text('[{"counts": [[1], [1, 2]]}]'), "not a list of clients"),
        (lambda f: (f / "clients.json").write_text('[{"samples": null}]'), "not a list of clients"),
    ],
)
def test_bad_folders_are_refused_in_one_sentence(tmp_path: Path, spoil, words: str) -> None:
    folder = write(tmp_path / "a", [0.1])
    spoil(folder)
    with pytest.raises(UserError, match=words) as error:
        read_runs(folder)
    assert "\n" not in str(error.value) and str(folder) in str(error.value)


def test_folders_without_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a folder"):
        read_runs(tmp_path / "none")
    with pytest.raises(UserError, match="holds no run"):
        read_runs(tmp_path)
    with pytest.raises(UserError, match="No folder"):
        read_runs([])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (999, "999"),
        (999.7, "1 k"),
        (1000, "1 k"),
        (999_900, "1 M"),
        (1.26e9, "1.26 G"),
        (0.05, "0.05"),
        (math.inf, "NaN"),
    ],
)
def test_short_numbers(value: float, text: str) -> None:
    assert short(value) == text


def test_the_terminal_table_holds_what_was_measured(tmp_path: Path) -> None:
    from rich.console import Console

    for seed, end in ((0, 0.5), (1, 0.7)):
        write(tmp_path / "a" / f"seed-{seed}", [0.1, end], seed=seed)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(compare(tmp_path / "a"))
    text = console.export_text()
    assert "60.00 ± 14.14" in text and "30 B" in text and "2 seeds" in text and "Personal" not in text


def test_costs_say_which_seeds_reached_the_target(tmp_path: Path) -> None:
    for seed, end in ((0, 0.5), (1, 0.7)):
        write(tmp_path / "a" / f"seed-{seed}", [0.1, end], seed=seed)
    write(tmp_path / "b", [0.1, 0.2], algorithm="local")
    rows = read_runs([tmp_path / "a", tmp_path / "b"])
    assert costs(rows, 0.6)[0].cells == ["2 (1 of 2 seeds)", "not reached"]
    assert costs(rows, 0.9) == []
    assert default_target(rows) == 0.57  # the larger of two medians, 0.6, times 0.95


@pytest.mark.slow
def test_pooled_data_are_never_bold_and_the_caption_says_so(tmp_path: Path) -> None:
    for name, values in {"fedavg": [0.1, 0.7], "fedprox": [0.1, 0.6], "centralized": [0.8, 0.9]}.items():
        write(tmp_path / name, values, name)
    rows = read_runs(tmp_path / name for name in ("fedavg", "fedprox", "centralized"))
    bold = next(column.best for column in columns(rows) if column.metric.key == "global_accuracy")
    assert bold == {0} and unbeaten(measured(rows), rows).endswith("(centralized left out)")
    assert default_target(rows) == 0.66  # 95 % of the larger of two, 0.7, and not of the pooled data
    assert not left_out(rows[:2]) and "the highest (centralized left out) is bold, unless all are equal" in render(rows)


def test_lines_that_hide_each_other_are_named_and_a_target_that_nobody_named_is_explained(tmp_path: Path) -> None:
    for name, values in {"fedavg": [0.1, 0.7], "fedprox": [0.1, 0.7], "scaffold": [0.2, 0.6]}.items():
        write(tmp_path / name, values, name)
    page = render(read_runs(tmp_path / name for name in ("fedavg", "fedprox", "scaffold")))
    assert "The same line: fedavg, fedprox." in page
    assert "Cost of reaching 66 % global accuracy (about 5 % worse than what the median row reached; apiece com" in page
    assert "median row" not in render(read_runs(tmp_path / name for name in ("fedavg", "scaffold")), 0.5)


def test_rows_that_differ_in_a_path_have_its_last_part_unless_it_is_the_same(tmp_path: Path) -> None:
    one, two = write(tmp_path / "1", [0.5], data="/far/a.csv"), write(tmp_path / "2", [0.5], data="/far/b.csv")
    assert [row.name for row in read_runs([one, two])] == ["fedavg, data a.csv", "fedavg, data b.csv"]
    plugins = [write(tmp_path / n, [0.5], plugin=[f"/far/own.py#sha256={n * 64}"]) for n in "ab"]
    assert [row.name for row in read_runs(plugins)] == ["fedavg, plugin own.py aaaaaa", "fedavg, plugin own.py bbbbbb"]
    three = write(tmp_path / "3", [0.5], data="/near/a.csv")
    assert [row.name for row in read_runs([one, three])] == ["fedavg, data /far/a.csv", "fedavg, data /near/a.csv"]


def test_a_file_among_folders_is_named_unless_apiece_writes_such_files(tmp_path: Path, capsys) -> None:
    run = write(tmp_path / "run", [0.5])
    for name in ("notes.txt", "report.html", "grid.json", "grid.md"):
        (tmp_path / name).write_text("")
    assert run in begun(sorted(tmp_path.iterdir()))
    named = capsys.readouterr().err.splitlines()
    assert named == [f"apiece: {tmp_path / 'notes.txt'} is a file, no folder of a run, and is left out."]


def test_a_report_that_lies_among_the_runs_is_passed_over(tmp_path):
    from apiece.config.settings import Config
    from apiece.experiment.launch import run_config

    run_config(Config(rounds=1, steps="1", clients=3, model="softmax_regression", out=str(tmp_path / "one")))
    (tmp_path / "report.html").write_text("an earlier page")
    assert [row.name for row in read_runs(sorted(tmp_path.iterdir()))] == ["fedavg"]
    with pytest.raises(UserError, match="not a folder"):
        read_runs([tmp_path / "report.html"])


# --- which numbers are bold -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("means", "deviations", "seeds", "bold"),
    [
        ((67.78, 67.36), (10.21, 11.59), 3, {0, 1}),
        ((90.0, 80.0, 89.9), (1.0, 1.0, 1.0), 3, {0, 2}),
        ((91.87, 82.56), (1.32, 4.71), 3, {0}),
        ((90.0, 89.0), (0.0, 0.0), 3, {0}),
        ((90.0, 80.0), (0.0, 0.0), 1, {0}),
        ((80.0, 80.0), (1.0, 2.0), 3, set()),
        ((80.0,), (1.0,), 3, set()),
    ],
)
def test_bold_is_what_does_not_lie_below_the_best(means, deviations, seeds, bold):
    values = [Spread(m, sd, seeds) for m, sd in zip(means, deviations, strict=True)]
    assert best(values) == bold
    assert best([None, *values, Spread(math.nan, 0.0, seeds)]) == {place + 1 for place in bold}


def test_one_seed_beside_several_cannot_be_told_from_them():
    assert best([Spread(0.8, 0.01, 3), Spread(0.9, 0.0, 1), Spread(0.1, 0.01, 3)]) == {0, 1, 2}
    assert best([Spread(0.8, 0.01, 3), Spread(0.7, 0.0, 1), Spread(0.1, 0.01, 3)]) == {0, 1}


def test_what_is_unfinished_and_who_has_no_test_sample_is_said(tmp_path: Path) -> None:
    run = read_run(write(tmp_path / "a", [0.1, 0.4]))
    clients = [{"name": "Jena", "tests": 0}, {"name": "Gera", "tests": 3}]
    rows = [Runs("a", (replace(run, config=run.config | {"rounds": 3}, clients=clients),))]
    assert [line for line in notes(rows) if "2 of 3 rounds are done" in line or "'Jena'" in line] == [
        "a: 2 of 3 rounds are done.",
        "No test sample, and so no value of its own, has client 'Jena': it is in no mean over clients.",
    ]
    out = io.StringIO()
    Console(file=out, width=200).print(summary(rows))
    assert f"{run.path}: 2 of 3 rounds are done." in out.getvalue()


def test_a_mean_lies_below_another_where_scipy_says_so():
    rng, found = np.random.default_rng(0), []
    for _ in range(200):
        one, other = (Spread(rng.normal(), abs(rng.normal()), int(rng.integers(2, 9))) for _ in range(2))
        found.append(below(one, other))
        assert found[-1] == (ttest_ind_from_stats(*one, *other, equal_var=False, alternative="less").pvalue < 0.05)
    assert 20 < sum(found) < 180


def test_the_best_is_bold_on_a_terminal_and_has_a_star_in_a_pipe():
    from rich.console import Console

    from apiece.report.terminal import About, Best

    for terminal, cell, said in ((True, "\x1b[1m0.5", "is bold."), (False, "* 0.5", "has a star.")):
        console = Console(force_terminal=terminal, width=80, color_system="standard" if terminal else None)
        with console.capture() as shown:
            console.print(Best("0.5"), About("The highest is bold."))
        assert cell in shown.get() and said in shown.get()


# --- a global model that no server has ------------------------------------------------------------------------------
def whole(folder: Path, name: str, end: float, periods: str) -> Path:
    """A run whose run.toml has the algorithm with its periods."""
    write(folder, [0.1, end], name)
    with (folder / "run.toml").open("a") as file:
        file.write(f"algorithm = \"Algorithm(name='{name}', pieces=(), periods=({periods}))\"\n")
    return folder


@pytest.mark.parametrize(
    ("part", "virtual"), [((), False), ((Period("head", NEVER),), True), ((Period("*", 5), Period(2, NEVER)), True)]
)
def test_a_run_folder_tells_whether_its_global_model_is_virtual(part, virtual) -> None:
    run = replace(run_of([0.5]), resolved={"algorithm": repr(algorithm(*part, name="one"))})
    assert Runs("one", (run,)).virtual == virtual
    assert not Runs("one", (run_of([0.5]),)).virtual  # an older folder
    for buffers, policy in ((0, "local"), (8, "average"), (8, "local")):
        own = replace(run, config={"buffers": policy}, resolved={"algorithm": "", "buffers": buffers})
        assert Runs("one", (own,)).virtual == ((buffers, policy) == (8, "local"))


def test_a_virtual_global_model_is_marked_and_never_bold(tmp_path: Path) -> None:
    personal = "Period(which='head', every=inf),"
    folders = [whole(tmp_path / "own", "own", 0.9, personal), whole(tmp_path / "a", "a", 0.5, "")]
    folders.append(whole(tmp_path / "b", "b", 0.6, ""))
    rows = read_runs(folders)
    first = columns(rows)[0]
    assert first.best == {2} and first.virtual == {0}
    assert default_target(rows) == 0.57 and costs(rows, 0.55)[0].cells == ["–", "not reached", "2"]
    text, page = printed(folders), render(rows)
    assert "† 90.00" in text and "* 60.00" in text and "†: the average of clients' models" in text
    assert "<em>90.00 †</em>" in page and "In italics, with †" in page and "Of own: the average" in page
    own, *_, b = for_programs(folders, 0.55)
    assert own["virtual"] and not own["numbers"]["global_accuracy"]["best"]
    assert own["to_target"]["rounds"]["mean"] is None
    assert not b["virtual"] and b["numbers"]["global_accuracy"]["best"]
    assert "†" not in render(rows[1:]) and "No row has a global model" in printed(folders[:1], 0.5)


def test_a_star_is_explained_and_a_single_row_has_none(tmp_path: Path) -> None:
    one, other = (write(tmp_path / name, [0.1, end], name) for name, end in (("a", 0.5), ("b", 0.6)))
    assert "* 60.00" in (text := printed([one, other])) and "The highest has a star, unless all are equal." in text
    assert "*" not in printed(one) and "star" not in printed(one)
    for seed in (0, 1):
        write(tmp_path / "c" / f"seed-{seed}", [0.1, 0.5 + 0.1 * seed], "c", seed=seed)
    assert "Mean ± standard deviation over 2 seeds." in (text := printed(tmp_path / "c")) and "star" not in text


def printed(folders: Any, target: float | None = None) -> str:
    """The table of run folders in a pipe, on one line a sentence."""
    from rich.console import Console

    console = Console(width=400, file=io.StringIO())
    console.print(compare(folders, target))
    return console.file.getvalue()


def test_a_training_loss_that_rose_is_told_with_what_mends_it(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", [0.5, 0.4, 0.1])
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for losses, told in (([2.3, 1.0, 3.5], True), ([2.3, 1.0, 2.9], False), ([9.0, 1.0, 3.5], False)):
        rows = [line | {"train_loss": loss} for line, loss in zip(lines, losses, strict=True)]
        (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
        said = "fedavg: the training loss rose from 1 in round 2 to 3.5: lower --lr, or shorten gradients by --clip."
        assert (said in " ".join(printed(folder).split())) is (said in render(read_runs(folder))) is told
