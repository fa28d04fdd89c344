"""Figures for papers: what the axes hold, the files, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure
from support.outer import cli, sentence

import apiece
from apiece.report import drawing
from apiece.report.drawing import COLORS
from apiece.report.records import Curve


def write(folder: Path, algorithm: str, seed: int = 0, personal: bool = True) -> Path:
    """Four rounds; the personal accuracy is 0.5, 0.6, ... and one hundredth more with each seed."""
    folder.mkdir(parents=True)
    (folder / "run.toml").write_text(f'[config]\nalgorithm = "{algorithm}"\nseed = {seed}\nrounds = 4\n')
    lines = [
        {"round": t, "global_accuracy": 0.1 * t, "bytes_up": 2e6 * t, "bytes_down": 1e6 * t, "seconds": 0.5,
         "consensus": {"head": 1.0 / t}, "Own.step": t}
        | ({"personal_accuracy_mean": 0.4 + 0.1 * t + 0.01 * seed} if personal else {})
        for t in range(1, 5)
    ]  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for seed in (0, 1, 2):
        write(tmp_path / "runs" / f"one-{seed}", "fedavg", seed)
    write(tmp_path / "runs" / "two", "scaffold")
    return tmp_path / "runs"


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


@pytest.mark.parametrize(
    "x, places, label",
    [("rounds", [1, 2, 3, 4], "round"), ("bytes", [3, 6, 9, 12], "bytes sent, up and down (MB)"),
     ("seconds", [0.5, 1, 1.5, 2], "seconds of training (s)")],
)  # fmt: skip
def test_the_axes_hold_the_means_and_the_spread(runs, x, places, label):
    axes = apiece.figure(runs, x=x, y="personal")
    mean, other = axes.get_lines()
    assert np.allclose(mean.get_xdata(), places) and np.allclose(mean.get_ydata(), [51, 61, 71, 81])
    assert np.allclose(other.get_ydata(), [50, 60, 70, 80])
    (band,) = axes.collections  # one seed has none
    assert np.isclose(band.get_paths()[0].vertices[:, 1].max(), 82)
    assert (axes.get_xlabel(), axes.get_ylabel()) == (label, "Personal accuracy (%)")
    assert [text.get_text() for text in axes.figure.legends[0].get_texts()] == ["fedavg", "scaffold"]


def test_lines_in_print_differ_without_their_colors(tmp_path):
    names = [f"algorithm{i}" for i in range(2 * len(COLORS))]
    for name in names:
        write(tmp_path / name, name)
    lines = apiece.figure([tmp_path / name for name in names], style="print").get_lines()
    assert len({(line.get_marker(), str(line._dash_pattern)) for line in lines}) == len(names)  # pyright: ignore


def test_axes_of_ones_own_are_drawn_into(runs):
    own = Figure().subplots(1, 2)
    assert apiece.figure(runs, axes=own[1], y="Own.step") is own[1] and not own[0].lines
    assert own[1].get_ylabel() == "Own.step" and not pyplot.get_fignums()
    assert apiece.figure(runs, axes=own[0], y="consensus/head").get_ylabel() == "Consensus distance of head"
    assert own[0].get_legend() is not None


@pytest.mark.parametrize("ending, start", [("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_a_file_of_each_kind_is_the_same_twice(runs, tmp_path, ending, start):
    made = []
    for name in ("a", "b"):
        out = tmp_path / "deep" / f"{name}.{ending}"
        ended = cli("figure", runs, "--x", "bytes", "--y", "personal", "--style", "print", "--out", out)
        assert ended.code == 0 and ended.out.strip() == str(out)
        made.append(out.read_bytes())
    assert made[0] == made[1] and made[0].startswith(start)
    assert not pyplot.get_fignums()  # no window's figure


def test_runs_without_the_number_are_named_and_left_out(runs, tmp_path):
    write(tmp_path / "three", "local", personal=False)
    ended = cli("figure", runs, tmp_path / "three", "--y", "personal", "--out", tmp_path / "f.svg")
    assert ended.code == 0 and "local has no 'personal' (personal_accuracy_mean), and is left out" in ended.err
    assert ">fedavg<" in (tmp_path / "f.svg").read_text() and ">local<" not in (tmp_path / "f.svg").read_text()


def test_a_line_that_ends_with_an_unfinished_seed_is_told(runs, tmp_path):
    log = runs / "one-1" / "metrics.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:3]))
    ended = cli("figure", runs, "--out", tmp_path / "f.svg")
    assert ended.code == 0 and ended.err.splitlines() == [f"apiece: {runs / 'one-1'}: 3 of 4 rounds are done."]


@pytest.mark.parametrize(
    "words, said",
    [
        (["--y", "persnal"], ["no metric 'persnal'", "did you mean 'personal'"]),
        (["--y", "unseen"], ["no run has measured 'unseen'", "personal"]),
        (["--y", "consensus"], ["measured of each layer by itself: take one of consensus/head."]),
        (["--y", "round"], ["'round' is what --x rounds draws other numbers against"]),
        (["--out", "f.jpg"], ["f.jpg has no known ending", ".svg"]),
        (["nowhere"], ["nowhere is not a folder"]),
    ],
)
def test_a_mistake_gets_one_sentence(runs, tmp_path, words, said):
    sentence(cli("figure", runs, *words, *([] if "--out" in words else ["--out", tmp_path / "f.pdf"])), *said)


def test_a_mistake_in_python(runs):
    for wrong in ({"x": "time"}, {"style": "paper"}):
        with pytest.raises(apiece.UserError, match="is unknown; .*[Aa]llowed"):
            apiece.figure(runs, **wrong)


def test_a_band_on_a_log_axis_goes_down_as_far_as_it_goes_up():
    axes = pyplot.figure().add_subplot()
    mean, sd = np.array([8.0, 1.0]), np.array([8.0, 3.0])  # mean - sd is no positive number
    drawing.line(axes, Curve(np.array([1.0, 2.0]), mean, sd), drawing.series(["fedavg"])[0], log=True)
    reached = axes.collections[0].get_paths()[0].vertices
    assert {(x, y) for x, y in reached.tolist()} == {(1.0, 4.0), (1.0, 16.0), (2.0, 0.25), (2.0, 4.0)}


def test_the_figure_of_a_metric_with_a_log_axis_has_such_a_band(tmp_path):
    for seed, value in enumerate((1.0, 100.0)):  # mean 50.5, sd 70: no positive number below
        folder = write(tmp_path / f"one-{seed}", "fedavg", seed)
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        text = "".join(json.dumps(line | {"gradient_dissimilarity": value}) + "\n" for line in lines)
        (folder / "metrics.jsonl").write_text(text)
    axes = apiece.figure(tmp_path, y="gradient_dissimilarity")
    reached = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert axes.get_yscale() == "log" and np.isclose(reached.min(), 50.5**2 / reached.max())


def test_a_legend_of_many_rows_leaves_the_plot_its_height(tmp_path):
    heights = {}
    for count in (2, 8):
        for i in range(count):
            write(tmp_path / str(count) / str(i), f"fedals(alpha={i + 2}, head=1) + relaxed_init(0.1)")
        apiece.figure(tmp_path / str(count), style="print", out=tmp_path / "f.png")
        axes = apiece.figure(tmp_path / str(count), style="print")
        axes.figure.canvas.draw()
        heights[count] = axes.get_window_extent().height
    assert heights[8] == pytest.approx(heights[2], rel=0.1)


def test_a_row_has_the_color_of_the_report_where_another_row_is_left_out(tmp_path):
    folders = [write(tmp_path / name, name, personal=name != "two") for name in ("one", "two", "three")]
    looks = {look.label: look.color for look in drawing.series(("one", "two", "three"))}
    lines = apiece.figure(folders, y="personal").get_lines()
    assert {line.get_label(): line.get_color() for line in lines} == {name: looks[name] for name in ("one", "three")}


def test_the_legend_of_six_rows_takes_little_of_a_narrow_figure(tmp_path):
    for length in (8, 12, 16):
        names = [f"{'abcdef'[i] * length}" for i in range(6)]
        folders = [write(tmp_path / str(length) / name, name) for name in names]
        figure = apiece.figure(folders, style="print").figure
        figure.canvas.draw()
        box = figure.legends[0].get_window_extent()
        assert box.width * box.height < 0.36 * figure.bbox.width * figure.bbox.height
        assert min(box.width / figure.bbox.width, box.height / figure.bbox.height) < 0.3 or length > 12
