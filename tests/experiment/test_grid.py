"""`apiece grid`: every row with every column, kept and gone on with by cell, tabled, and what it refuses."""

from __future__ import annotations

import io
import json
import re
import shlex
import statistics
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.html import Page
from support.outer import TINY, Ended, cells, cli, draw_no_page_of_one_run, metrics, sentence
from support.recipes import result
from support.subjects import COMPOSITIONS, commands

from apiece.config.settings import Config
from apiece.config.tables import flags
from apiece.errors import UserError
from apiece.experiment import folders, grid, saved
from apiece.experiment.launch import run_config
from apiece.language.grammar import parse_list
from apiece.report import page as report
from apiece.report.grid_table import Grid
from apiece.report.metrics import choices
from apiece.report.pictures import read

SMALL: dict[str, Any] = TINY | {"rounds": 2, "drift": "none", "panel": 2, "model": "mlp(hidden=[4])"}


@pytest.fixture(autouse=True)
def no_report(monkeypatch, request):
    if request.node.name != "test_a_grid":
        monkeypatch.setattr(report, "write_report", lambda _, out, *rest: Path(out))
        monkeypatch.setattr(grid, "write_report", lambda _, out, *rest: Path(out))


def table(out: Path, rows: str, columns: str, *flags: object, **settings: Any) -> Ended:
    """`apiece grid` of the smallest runs."""
    words = [word for k, v in (SMALL | settings).items() for word in (f"--{k.replace('_', '-')}", v)]
    return cli("grid", "--rows", rows, "--columns", columns, *words, "--out", out, *flags)


def told(values: list[float]) -> str:
    """Mean and sample standard deviation in percent, written by hand."""
    mean, sd = 100 * statistics.mean(values), 100 * statistics.stdev(values)
    return f"{mean:.2f}" + (f" ± {sd:.2f}" if sd else "")


@pytest.mark.slow
def test_a_grid(tmp_path, monkeypatch):
    draw_no_page_of_one_run(monkeypatch)
    out = tmp_path / "grid"
    ended = table(out, "fedavg, scaffold", "nothing, scaffold, fedals(alpha=2, cohort=held) + relaxed_init(0.1)",
                  "--seeds", "0,1")  # fmt: skip
    assert ended.code == 0, ended
    said, left = zip(*(line.partition(", about ")[::2] for line in ended.err.splitlines() if "cell" in line))
    assert not left[0] and all(re.fullmatch(r"\d+ (second|minute)s? left", text) for text in left[1:])
    assert list(said[2:4] + said[9:]) == [
        "apiece: cell 3 of 5, seed 0: fedavg + fedals(alpha=2, cohort=held) + relaxed_init(0.1)",
        "apiece: cell 4 of 5, seed 0: scaffold",
        "apiece: cell 5 of 5, seed 1: scaffold + fedals(alpha=2, cohort=held) + relaxed_init(0.1)",
    ]
    slow = "fedals(alpha=2,cohort=held)+relaxed_init(0.1)"
    named = ["fedavg", "fedavg+scaffold", f"fedavg+{slow}", "scaffold", f"scaffold+{slow}"]
    assert {path.name for path in out.iterdir()} == {*named, "grid.md", "grid.json", "report.html"}
    values = [[metrics(out / name / f"seed-{s}")[-1]["global_accuracy"] for s in (0, 1)] for name in named]
    expected = [told(v) for v in values]
    expected.insert(4, "– [1]")
    assert [cell for row in cells(out) for cell in row[1:]] == expected
    assert [row[0] for row in cells(out)] == ["`fedavg`", "`scaffold`"]
    text = (out / "grid.md").read_text()
    assert "over 2 seeds" in text and "[1] scaffold + scaffold: " in text and "the same piece twice" in text
    for said in (expected[0], "– [1]", "[1] scaffold + scaffold", str(out / "grid.md")):
        assert said in ended.out
    page = (out / "report.html").read_text()
    Page(page)
    assert page.count('id="grid"') == 1 and "fedavg + fedals(alpha=2, cohort=held) + relaxed_init(0.1)" in page
    assert page.index('id="grid"') < page.index('id="results"') and "– [1]" in page
    reported = cli("report", out, "--out", tmp_path / "again.html")  # as the command wrote it
    assert reported.code == 0 and (tmp_path / "again.html").read_text() == page
    two = cli("report", out / "fedavg", out, out, "--out", tmp_path / "two.html")
    both = (tmp_path / "two.html").read_text()
    Page(both)
    assert two.code == 0 and both.count('id="grid"') == both.count('id="grid-2"') == 1
    again = shlex.split(text.split("```")[1].strip())
    assert again[:2] == ["apiece", "grid"] and cli(*again[1:]).code == 0
    assert (out / "grid.md").read_text() == text


KEPT = {"rows": ["a"], "columns": ["b", "c"], "cells": [["1", "2"]], "best": [[True, False]], "notes": [], "about": ""}
ODD = [KEPT | odd for odd in ({"cells": 5}, {"cells": [["1"]]}, {"best": None}, {"rows": [{}]}, {"columns": "bc"},
                              {"notes": [1]}, {"folders": 3}, {"about": []}, {"cells": [["1", None]]})]  # fmt: skip


def test_a_grid_that_is_kept_is_read(tmp_path):
    (tmp_path / "grid.json").write_text(json.dumps(KEPT))
    assert Grid.kept(tmp_path) == Grid(**KEPT)


@pytest.mark.parametrize("content", ["", "[1]", '{"rows": []}', *map(json.dumps, ODD)])
def test_a_table_that_cannot_be_read_is_refused_in_one_sentence(tmp_path, content):
    (tmp_path / "grid.json").write_text(content)
    with pytest.raises(UserError, match="grid.json holds no grid: run the same grid again"):
        Grid.kept(tmp_path)


@pytest.mark.parametrize("width", [40, 56, 80, 200])
def test_no_number_of_a_grid_is_cut_however_narrow_the_terminal(width):
    rows, columns = ["fedavg", "scaffold" * 6], ["nothing", "fedals(alpha=2, cohort=held) + relaxed_init(0.1)", "x"]
    cells = [[f"5{r}.{c}9 ± 11.20 [{c}]" for c in range(3)] for r in range(2)]
    shown = io.StringIO()
    grid = Grid(rows, columns, cells, [[True, False, True]] * 2, [], "about")
    Console(file=shown, width=width).print(grid.table())
    assert all(cell in shown.getvalue() for row in cells for cell in row), shown.getvalue()
    assert "relaxed_init(0.1)" in shown.getvalue() and max(map(len, shown.getvalue().splitlines())) <= width


def test_the_best_of_a_row_is_bold(tmp_path):
    assert table(tmp_path / "g", "fedavg", "nothing, fedadam").code == 0
    values = [metrics(tmp_path / "g" / name / "seed-0")[-1]["global_accuracy"] for name in ("fedavg", "fedavg+fedadam")]
    best, other = (f"{100 * v:.2f}" for v in sorted(values, reverse=True))
    text = (tmp_path / "g" / "grid.md").read_text()
    assert best != other and f"**{best}**" in text and f"**{other}**" not in text
    assert "in each row the highest is bold, unless all are equal." in text


def test_a_model_that_no_server_has_is_never_bold(tmp_path):
    assert table(tmp_path / "g", "fedavg, fedadam", "nothing, fedper").code == 0
    text = (tmp_path / "g" / "grid.md").read_text()
    rows = [[part.strip() for part in line.split("|")[1:-1]] for line in text.splitlines() if "`fed" in line][1:]
    assert len(rows) == 2 and all(own.endswith(" [1]") and "**" not in alone + own for _, alone, own in rows)
    assert "[1] This model is the average of clients' models, which the server does not have." in text


# --- kept, gone on with, refused ------------------------------------------------------------------------------------
class Stop(Exception):
    """The power is cut here."""


@pytest.mark.slow
def test_a_stopped_grid_goes_on_by_cell(tmp_path, monkeypatch):
    """Finished cells are not touched, the one that was stopped goes on from its checkpoint, all as if never stopped."""
    out, cuts, save = tmp_path / "grid", [], saved.save

    def cut(folder, *rest):
        cuts.append(folder)
        if len(cuts) > 3:  # in the second of the second cell's rounds
            raise Stop
        save(folder, *rest)

    monkeypatch.setattr(saved, "save", cut)
    with pytest.raises(Stop):
        table(out, "fedavg, scaffold", "nothing, relaxed_init(0.1)")
    monkeypatch.setattr(saved, "save", save)
    first, second = (out / name / "seed-0" for name in ("fedavg", "fedavg+relaxed_init(0.1)"))
    assert folders.ended(first) and (second / "run.toml").is_file() and not folders.ended(second)
    before = {path: path.stat().st_mtime_ns for path in [*first.rglob("*"), second / "run.toml"]}
    again = table(out, "fedavg, scaffold", "nothing, relaxed_init(0.1)")
    assert again.code == 0 and again.err.startswith("apiece: cell 1 of 4, seed 0: fedavg, which has ended\n")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    for algorithm in ("fedavg", "fedavg + relaxed_init(0.1)", "scaffold", "scaffold + relaxed_init(0.1)"):
        whole = tmp_path / "whole" / algorithm
        run_config(Config(**SMALL, algorithm=algorithm, out=str(whole)))
        assert result(out / algorithm.replace(" ", "") / "seed-0") == result(whole)


def test_a_grid_with_a_file_of_ones_own_goes_on(tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from apiece import Algorithm, algorithm\nfrom apiece.pieces.proximal import Proximal\n"
        "__all__ = ['mine']\n"
        'def mine() -> Algorithm:\n    """Mine (Me 2026)."""\n    return algorithm(Proximal(0.1), name="mine")\n'
    )
    for _ in range(2):
        ended = table(tmp_path / "grid", "fedavg", "nothing, mine", "--plugin", plugin)
        assert ended.code == 0, ended
    assert len(cells(tmp_path / "grid")) == 1


@pytest.mark.slow
def test_a_grid_grows(tmp_path):
    assert table(tmp_path / "g", "fedavg", "nothing").code == 0
    kept = (tmp_path / "g" / "fedavg" / "seed-0" / "model.safetensors").stat().st_mtime_ns
    assert table(tmp_path / "g", "fedavg, scaffold", "nothing", "--seeds", "0,1").code == 0
    assert (tmp_path / "g" / "fedavg" / "seed-0" / "model.safetensors").stat().st_mtime_ns == kept
    assert [len(row) for row in cells(tmp_path / "g")] == [2, 2]


def test_another_configuration_is_refused_by_name_before_anything_runs(tmp_path):
    out = tmp_path / "g"
    assert table(out, "scaffold", "nothing").code == 0
    ended = table(out, "fedavg, scaffold", "nothing", steps=3, lr=0.2)
    sentence(ended, str(out / "scaffold" / "seed-0"), "steps is 2 there and 3 here", "lr is 0.1 there and 0.2 here")
    assert not (out / "fedavg").exists()


BAD = [
    (("fedavgg", "nothing"), {}, "--rows 'fedavgg'", "did you mean 'fedavg'"),
    (("fedavg, fedprox(nu=1)", "nothing"), {}, "at character", "no argument 'nu'"),
    (("fedavg,", "nothing"), {}, "--rows", "expected a name, found the end"),
    (("fedavg; scaffold", "nothing"), {}, "cannot read ';'"),
    (("nothing", "scaffold"), {}, "--rows", "unknown name 'nothing'"),
    (("fedavg", "nothing, scaffold, scaffold()"), {}, "--columns", "names 'scaffold' twice"),
    (("scaffold", "scaffold"), {}, "no cell of this grid can be run", "the same piece twice"),
    (("fedavg", "nothing"), {"metric": "globl"}, "no metric 'globl'", "did you mean 'global'"),
    (("fedavg", "nothing"), {"metric": "unseen"}, "--unseen"),
    (("fedavg", "nothing"), {"algorithm": "scaffold"}, "rows and columns", "--algorithm"),
    (("fedavg", "nothing"), {"rounds": 0}, "rounds=0"),
    (("fedavg", "nothing"), {"data": "nowhere.npz"}, "nowhere.npz"),
]


@pytest.mark.parametrize("given, settings, said", [(g, s, said) for g, s, *said in BAD], ids=lambda v: str(v)[:40])
def test_bad_input_is_one_sentence(tmp_path, given, settings, said):
    sentence(table(tmp_path / "g", *given, **settings), *said)
    assert not (tmp_path / "g").exists()


def test_a_grid_needs_a_folder_of_its_own(tmp_path):
    sentence(cli("grid", "--rows", "fedavg", "--columns", "nothing"), "--out")
    assert table(tmp_path / "g", "fedavg", "nothing").code == 0
    sentence(table(tmp_path / "g" / "fedavg" / "seed-0", "fedavg", "nothing"), "is the folder of a run")


# --- what stands in a cell ------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_cell_that_becomes_non_finite_is_a_dash_and_the_others_are_run(tmp_path):
    ended = table(tmp_path / "g", "fedavg, fedprox", "relaxed_init(beta=50), nothing", rounds=30, lr=0.5, eval_every=30)
    assert ended.code == 0, ended
    assert [row[1] for row in cells(tmp_path / "g")] == ["– [1]", "– [2]"]
    assert all(re.fullmatch(r"\d+\.\d\d", row[2]) for row in cells(tmp_path / "g"))
    assert "[1] fedavg + relaxed_init(beta=50): seed 0: client 'client-" in ended.out


def test_personal_accuracy_where_there_is_no_global_model(tmp_path):
    out = tmp_path / "g"
    assert table(out, "fedavg, pfedhn", "nothing", metric="global").code == 0
    (_, plain), (_, personal) = cells(out)
    found = metrics(out / "pfedhn" / "seed-0")[-1]["personal_accuracy_mean"]
    assert "[" not in plain and personal == f"{100 * found:.2f} [1]"
    assert "[1] There is no global model: personal accuracy." in (out / "grid.md").read_text()
    assert table(out, "fedavg, pfedhn", "nothing", metric="personal").code == 0
    assert cells(out)[1][1] == f"{100 * found:.2f}"


@pytest.mark.parametrize("metric", choices())
def test_every_metric(tmp_path, metric):
    assert table(tmp_path / "g", "class_mask", "nothing", metric=metric, unseen=1).code == 0
    value = metrics(tmp_path / "g" / "class_mask" / "seed-0")[-1][choices()[metric].key]
    assert cells(tmp_path / "g") == [["`class_mask`", f"{100 * value:.2f}"]]


def test_a_cell_whose_models_are_written_by_a_generator_and_whose_piece_shows_pictures(tmp_path):
    """The pictures are made with the client's own model: the server has parameters of another shape."""
    assert table(tmp_path / "g", "pefll", "fedcog(steps=1, samples=4)", metric="personal").code == 0
    assert read(tmp_path / "g" / "pefll+fedcog(steps=1,samples=4)" / "seed-0").keys() == {
        "FedCOG, 0 steps",
        "FedCOG, 1 steps",
    }


# --- settings -------------------------------------------------------------------------------------------------------
def test_a_configuration_file_and_flags_over_it(tmp_path):
    """A run's own run.toml too: its algorithm is not the grid's."""
    settings = SMALL | {"algorithm": "scaffold", "rounds": 5}
    (tmp_path / "it.toml").write_text("\n".join(f"{k} = {json.dumps(v)}" for k, v in settings.items()))
    words = ["--config", tmp_path / "it.toml", "--rows", "fedavg", "--columns", "nothing", "--rounds", "1"]
    assert cli("grid", *words, "--out", tmp_path / "g").code == 0
    config = folders.read_config(tmp_path / "g" / "fedavg" / "seed-0")
    assert (config.algorithm, config.rounds, config.clients) == ("fedavg", 1, SMALL["clients"])


def test_flags_say_a_configuration(monkeypatch):
    asked: list[Config] = []
    monkeypatch.setattr("apiece.experiment.launch.run_config", lambda config, progress: asked.append(config))
    config = Config(algorithm="scaffold + fedals(5, cohort=held)", data_dir="a folder", split="classes(2)", cohort=7,
                    epochs=2, lr=0.05, clip=10.0, seeds=(3, 4), tensorboard=True, drift="none", out="o")  # fmt: skip
    assert cli("run", *shlex.split(flags(config))).code == 0 and asked == [config] and flags(Config()) == ""


def test_lists_of_expressions():
    text = 'fedavg, scaffold+fedals(alpha=5, cohort=held) ,x([1, 2], "a, b")'
    assert [" + ".join(map(str, terms)) for terms in parse_list(text)] == [
        "fedavg",
        "scaffold + fedals(alpha=5, cohort=held)",
        'x([1, 2], "a, b")',
    ]
    for bad, said in (("a,,b", "at character 3: expected a name"), ("a b", "expected the end or '+' or ','")):
        with pytest.raises(UserError, match=re.escape(said)):
            parse_list(bad)


# --- the docs -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("words", commands(), ids=lambda words: words[-1])
def test_the_docs_tables_are_of_their_commands(words, monkeypatch):
    """The command is taken as it stands, and what it says is impossible is what the docs show as a dash."""
    asked: list[tuple[Config, str, str]] = []

    def look(config, rows, columns, metric, progress):
        asked.append((config, rows, columns))
        raise UserError("seen")

    monkeypatch.setattr(grid, "run_grid", look)
    sentence(cli(*words[1:]), "seen")
    config, rows, columns = asked[0]
    names = grid._names(rows, "rows", ()), grid._names(columns, "columns", (), nothing=True)
    plan = grid._plan(config, *names, Path("somewhere"))
    shown = COMPOSITIONS.read_text().partition(f"--out {words[-1]}\n")[2].partition("```")[2].partition("```")[0]
    lines = [[cell.strip() for cell in line.split(" | ")] for line in shown.splitlines() if line.startswith("| `")]
    assert [line[0].strip("|` ") for line in lines] == names[0]
    dashes = {(r, c) for r, line in enumerate(lines) for c, text in enumerate(line[1:]) if "–" in text}
    assert dashes == {where for where, cell in plan.items() if cell.problem}
