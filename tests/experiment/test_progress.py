"""What is shown of a run: in a terminal, in a pipe, for a program, and to nobody."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stdout
from types import SimpleNamespace
from typing import Any

import pytest
from support.outer import TINY, cli, metrics, run, sentence

from apiece import federate
from apiece.experiment import progress
from apiece.experiment.progress import CURVE, curve

pytestmark = pytest.mark.usefixtures("no_report")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, **settings: Any) -> str:
    """What a run writes to a terminal so wide."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    with redirect_stdout(Terminal()) as out:
        federate("softmax_regression", progress=True, clients=6, rounds=8, steps=2, batch=8, **settings)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out.getvalue())


@pytest.mark.parametrize("columns, curved", [(140, True), (80, False)])
def test_a_terminal_shows_rounds_and_a_curve_if_it_is_wide(monkeypatch, columns, curved):
    out = on_a_terminal(monkeypatch, columns)
    assert "6 of 6 clients a round" in out and "8/8" in out
    assert re.search(r"global accuracy 0\.\d{3}", out) and ("▁" in out) is curved


def test_a_pipe_gets_a_line_a_round():
    progress.print_once.cache_clear()  # as at the beginning of a process
    lines = run().out.splitlines()
    assert lines[0] == "fedavg seed 0: 6 of 6 clients a round; nothing is kept, as no --out names a folder"
    assert re.fullmatch(r"clients are computed [a-z ]+, by \w+\([\d, ]*\); \w.*", lines[1])
    assert re.fullmatch(r"round 1 of 3: global accuracy 0\.\d{3}", lines[2])
    assert re.fullmatch(r"round 2 of 3: global accuracy 0\.\d{3}, \d+:\d\d:\d\d left", lines[3])
    assert re.fullmatch(r"round 3 of 3: global accuracy 0\.\d{3}", lines[4]) and not lines[5].strip()


def test_a_round_that_measured_nothing_shows_no_old_value():
    lines = [line for line in run(eval_every=2).out.splitlines() if line.startswith("round ")]
    assert [": global accuracy" in line for line in lines] == [False, True, True]


def test_of_several_seeds_the_first_says_how_clients_are_computed(tmp_path):
    progress.print_once.cache_clear()
    ended = run(seeds="0,1", out=tmp_path / "run")
    assert ended.out.count("clients are computed") == 1 and ended.out.count("round 1 of 3") == 2


def test_json_has_the_rounds_of_all_seeds_and_nothing_else(tmp_path):
    ended = run("--log-format", "json", seeds="0,1", out=tmp_path / "run", eval_every=2)
    told = [json.loads(line) for line in ended.out.splitlines()]
    assert [(info["seed"], info["round"]) for info in told] == [(s, t) for s in (0, 1) for t in (1, 2, 3)]
    for info in told[:3]:
        assert (info.pop("algorithm"), info.pop("seed"), info.pop("rounds")) == ("fedavg", 0, 3)
    assert told[:3] == metrics(tmp_path / "run" / "seed-0")


def test_quiet_prints_nothing_and_a_resumption_obeys_too(tmp_path):
    assert run("--quiet", out=tmp_path / "run")[:2] == (0, "")
    assert cli("resume", tmp_path / "run", "--rounds", 4, "--quiet")[:2] == (0, "")
    ended = cli("resume", tmp_path / "run", "--rounds", 6, "--log-format", "json")
    assert [json.loads(line)["round"] for line in ended.out.splitlines()][-2:] == [5, 6]
    sentence(run("--quiet", "--log-format", "json"), "--quiet and --log-format json", "leave one out")


def test_a_grid_obeys(tmp_path):
    words = [word for key, value in TINY.items() for word in (f"--{key}", value)]
    grid = ["grid", "--rows", "fedavg", "--columns", "nothing, relaxed_init(0.5)", "--out", tmp_path, *words]
    assert cli(*grid, "--quiet")[:2] == (0, "")
    table = json.loads(cli(*grid, "--json").out)
    assert [cell["column"] for cell in table["cells"]] == ["nothing", "relaxed_init(0.5)"]
    for cell in table["cells"]:
        assert f"{100 * cell['mean']:.2f}" == cell["text"] and cell["seeds"] == 1 and cell["sd"] == 0
    assert sum(cell["best"] for cell in table["cells"]) == 1


def test_a_resumed_run_has_its_whole_curve_and_its_own_pace(monkeypatch):
    """Twelve of twenty rounds were done before; then each takes two seconds."""
    clock = iter([100.0, 102.0, 104.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    known = progress.numbers()
    monkeypatch.setattr(progress, "numbers", lambda _: known)
    monkeypatch.setattr(progress, "measures_of", lambda _: ())
    setup = SimpleNamespace(setup=SimpleNamespace(task=None))
    experiment: Any = SimpleNamespace(config=SimpleNamespace(rounds=20), federated=setup)
    record = lambda t: {"round": t, "answered": 1, "global_accuracy": t / 20}
    past = [record(t) for t in range(1, 13)]
    monkeypatch.setattr(progress, "Told", dict)

    class Seen(dict):
        history = past

    read = progress._reader(experiment)
    first, second, third = (read(Seen(record(t))) for t in (13, 14, 15))
    assert first.left is None and (second.left, third.left) == (12.0, 10.0)
    assert third.curve == [t / 20 for t in range(1, 16)] and third.value == "global accuracy 0.750"


def test_a_curve_ends_with_the_latest_value():
    assert curve([0.1, 0.9]) == "▁█" and curve([0.5]) == "" and curve([0.3, 0.3]) == "▁▁"
    long = curve([0.0] * 999 + [1.0])
    assert len(long) == CURVE and long[-1] == "█" and set(long[:-1]) == {"▁"}
    assert curve([float("nan"), 0.0, float("inf"), 1.0]) == " ▁ █"
