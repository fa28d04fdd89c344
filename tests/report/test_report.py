"""The page: one file, whole without the network, and made from whatever was measured."""

from __future__ import annotations

import errno
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from support import tiers
from support.folders import write
from support.html import Page
from support.outer import cli

from apiece.errors import UserError
from apiece.report.fairness import by_client, table
from apiece.report.metrics import tenth
from apiece.report.page import place_of, write_report
from apiece.report.results import read_runs


def page(folders: Any, tmp_path: Path) -> str:
    text = write_report(folders, tmp_path / "report.html").read_text(encoding="utf-8")
    Page(text)
    return text


@pytest.mark.slow
def test_the_page_is_whole_in_itself(tmp_path: Path) -> None:
    out = write_report(write(tmp_path / "a"), tmp_path / "deep" / "folder")
    assert out == tmp_path / "deep" / "folder" / "report.html"
    parsed = Page(text := out.read_text(encoding="utf-8"))
    assert text.startswith("<!doctype html>")
    assert not parsed.all("link") and not parsed.all("iframe")
    assert [script.get("type") for script in parsed.all("script")] == ["application/json", None]  # its numbers, and one
    links = [v for _, attrs in parsed.seen for k, v in attrs.items() if k in ("src", "href", "xlink:href") and v]
    assert all(link.startswith(("#", "data:")) for link in links)
    assert not re.search(r"@import|url\((?!#)", text)


def test_every_figure_has_a_caption_and_a_text(tmp_path: Path) -> None:
    parsed = Page(page(write(tmp_path / "a"), tmp_path))
    figures, captions = parsed.all("figure"), parsed.all("figcaption")
    described = [svg for svg in parsed.all("svg") if svg.get("role") == "img"]
    assert len(figures) == len(captions) == len(described) >= 9
    identifiers = [attrs["id"] for _, attrs in parsed.seen if "id" in attrs]
    assert len(identifiers) == len(set(identifiers))
    assert {svg["aria-labelledby"] for svg in described} <= set(identifiers)


@pytest.mark.slow
def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = write(tmp_path / "a")
    assert page(folder, tmp_path) == page(folder, tmp_path)


def test_the_worst_tenth_is_that_of_the_log(tmp_path: Path) -> None:
    rows = read_runs(write(tmp_path / "a", clients=15))  # of which 14 trained
    cells = {column.metric.column: column.cells for column in table(rows)}
    assert tenth(14) == 1 and cells["Worst tenth"] == cells["Worst client"] == ["6.67"]


@pytest.mark.slow
def test_colors_are_the_pages(tmp_path: Path) -> None:
    from apiece.report.drawing import COLORS, INK, LINE, MUTED

    text = page([write(tmp_path / "a"), write(tmp_path / "b", algorithm="scaffold")], tmp_path)
    figures = "".join(re.findall(r"<svg.*?</svg>", text, re.S))
    assert "var(--c1)" in figures and "var(--ink)" in figures
    assert not any(color in figures for color in (*COLORS, INK, LINE, MUTED))
    light = dict(re.findall(r"--(c\d|ink):(#\w+)", text.split("@media")[0]))
    assert [light[f"c{i}"] for i in range(len(COLORS))] == list(COLORS) and light["ink"] == INK


def test_seeds_become_means_and_bands(tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        write(tmp_path / "a" / f"seed-{seed}", seed=seed)
    text = page(tmp_path / "a", tmp_path)
    assert "over 3 seeds" in text and "Band: one standard deviation" in text and "0, 1, 2" in text
    assert '93.31 <span class="sd">± 1.00</span>' in text  # 12/13 + 0.00, 0.01, 0.02


def test_few_clients_that_have_names_have_a_column_each(tmp_path: Path) -> None:
    folders = [write(tmp_path / f"seed-{seed}", clients=4, seed=seed) for seed in (0, 1)]
    text = page(folders, tmp_path)
    assert "<h3>Accuracy of each client on its own test set</h3>" in text
    shown = text[text.index("of each client on its own test set") :]
    heads = re.findall(r'<th scope="col">(.*?)</th>', shown.split("</thead>")[0])
    assert heads == ["Algorithm", *(f"c{i}<small>%</small>" for i in (1, 2, 3))]  # c0 never trained
    assert re.findall(r"<td>(.*?)</td>", shown.split("</tbody>")[0]) == ["25.00", "50.00", "75.00"]
    counts = json.loads((folders[0] / "clients.json").read_text())
    assert f"<b>c1</b>: {counts[1]['samples']} training samples; " in shown
    for folder, tests in zip(folders, (2, 3)):
        listed = [client | {"tests": tests} for client in json.loads((folder / "clients.json").read_text())]
        assert " test samples" not in str(by_client(read_runs(folders)))  # an older run does not say how many
        (folder / "clients.json").write_text(json.dumps(listed))
    first = by_client(read_runs(folders))[0].metric.caption
    assert first == f"{counts[1]['samples']} training and 2 to 3 test samples"
    for folder in folders:
        listed = (folder / "clients.json").read_text()
        (folder / "clients.json").write_text(listed.replace('"c', '"client-').replace("client-ounts", "counts"))
    assert "of each client on its own test set" not in page(folders, tmp_path)  # names that a split invented
    assert "of each client on its own test set" not in page(write(tmp_path / "many", clients=18), tmp_path)


def test_what_was_not_measured_is_left_out(tmp_path: Path) -> None:
    text = page(write(tmp_path / "a", full=False), tmp_path)
    for word in ("Drift", "Consensus", "Split", "Clients that trained", "Unseen", "Numbers up"):
        assert word not in text
    assert "Global accuracy" in text and "Training loss" in text


@pytest.mark.slow
def test_settings_that_differ_stand_apart(tmp_path: Path) -> None:
    folders = [
        write(tmp_path / "a", lr=0.1),
        write(tmp_path / "b", lr=0.5),
        write(tmp_path / "c", algorithm="scaffold"),
    ]
    text = page(folders, tmp_path)
    assert "3 runs on digits" in text and "fedavg, lr 0.5" in text
    table = text[text.index("Where the runs differ") : text.index("What they share")]
    assert re.findall(r'<th scope="col">(\w+)</th>', table) == ["Run", "algorithm", "lr"]


@pytest.mark.slow
def test_one_round_works(tmp_path: Path) -> None:
    assert "1 round." in page(write(tmp_path / "a", rounds=1), tmp_path)


# values catch a check for one of them alone
@pytest.mark.parametrize("bad", tiers.but((math.inf,), [math.nan, math.inf, -math.inf]))
def test_values_that_are_not_finite_are_said(tmp_path: Path, bad: float) -> None:
    folder = write(tmp_path / "a" / "seed-0", rounds=20)
    write(tmp_path / "a" / "seed-1", rounds=20, seed=1)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    broken = [
        json.loads(line) | {"train_loss": bad, "divergence_all": bad, "consensus": {"fc": bad}} for line in lines[9:]
    ]
    (folder / "metrics.jsonl").write_text("\n".join([*lines[:9], *map(json.dumps, broken)]))
    text = page(tmp_path / "a", tmp_path)
    assert "train_loss is not finite in 11 rounds, first in round 10" in text


def test_nothing_but_nan(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", rounds=1, full=False)
    (folder / "metrics.jsonl").write_text('{"round": 1, "global_accuracy": NaN, "train_loss": NaN, "bytes_up": 3}\n')
    assert "<figure" not in page(folder, tmp_path)


def test_lost_work_is_said(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", rounds=2, full=False)
    lines = ['{"round": 1, "cohort": 10, "answered": 9, "skipped": 2, "steps": 100, "steps_counted": 75}']
    (folder / "metrics.jsonl").write_text("\n".join(lines))
    text = page(folder, tmp_path)
    for words in ("1 of 2 rounds are done", "90.0 % of the clients asked", "75.0 % of the local steps", "2 messages"):
        assert words in text


def test_names_are_escaped(tmp_path: Path) -> None:
    text = page([write(tmp_path / "a", algorithm="<b>$x$ & y</b>"), write(tmp_path / "b")], tmp_path)
    assert "<b>$x$" not in text and "&lt;b&gt;$x$ &amp; y" in text


@pytest.mark.slow
def test_many_clients_layers_and_runs(tmp_path: Path) -> None:
    folders = [write(tmp_path / f"r{i}", rounds=2, clients=300, algorithm=f"a{i}") for i in range(9)]
    metrics = folders[0] / "metrics.jsonl"
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    layers = {f"layer{i}": 10.0**-i for i in range(40)}
    metrics.write_text("\n".join(json.dumps(row | {"consensus": layers}) for row in rows))
    text = page(folders, tmp_path)
    assert "data:image/png;base64" in text and "stroke-dasharray" in text and "layer 1, " in text


@pytest.mark.slow
def test_a_page_that_cannot_be_written_leaves_the_one_that_is_there(tmp_path, monkeypatch) -> None:
    """As on a full disk."""
    out = write_report(write(tmp_path / "a"), tmp_path / "page.html")
    before = out.read_bytes()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(UserError, match="the disk is full"):
        write_report(tmp_path / "a", out)
    assert out.read_bytes() == before


@pytest.mark.slow
def test_a_page_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_report(write(tmp_path / "a"), tmp_path / "file" / "report.html")


@pytest.mark.parametrize("command", ["compare", "report"])
def test_another_kind_of_file_is_no_page_and_is_told_at_once(command, tmp_path):
    """Before a reference row is trained; a folder may be called so."""
    said = cli(command, write(tmp_path / "run"), "--out", tmp_path / "page.pdf")
    assert said.code == 2 and "no page" in said.err and "apiece figure RUN --out page.pdf" in said.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    (tmp_path / "old.txt").mkdir()
    assert place_of(tmp_path / "old.txt") == tmp_path / "old.txt" / "report.html"


@pytest.mark.slow
def test_what_a_folder_says_is_text_on_the_page(tmp_path: Path) -> None:
    """Names, settings, clients and layers may hold anything: none of it becomes an element of the page."""
    evil = '<evil-one onload=x>$frac{&"[/b]'
    for name in ("one", "two"):
        folder = write(tmp_path / name, algorithm=f"{evil} {name}", data=evil, note=evil)
        text = (folder / "run.toml").read_text()
        (folder / "run.toml").write_text(
            text.replace("[versions]", f"[versions]\n{json.dumps(evil)} = {json.dumps(evil)}")
        )
        lines = [
            json.loads(line) | {"consensus": {evil: 0.5}}
            for line in (folder / "metrics.jsonl").read_text().splitlines()
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        clients = [{"name": evil, "seen": True, "samples": 3, "accuracy": 0.5, "counts": [1, 2]}] * 3
        (folder / "clients.json").write_text(json.dumps(clients))
    page = write_report([tmp_path / "one", tmp_path / "two"], tmp_path / "page.html").read_text()
    assert "&lt;evil-one" in page and not Page(page).all("evil-one")


def test_all_data_in_one_place_drift_from_nobody(tmp_path: Path) -> None:
    rows = [write(tmp_path / name, algorithm=name) for name in ("fedavg", "scaffold", "centralized")]
    page = write_report(rows, tmp_path / "report.html").read_text()
    consensus = page.partition('id="consensus-by-layer"')[2].partition("<h2")[0]
    assert "<h3>fedavg</h3>" in consensus and "<h3>centralized</h3>" not in consensus
    divergence = next(text for text in re.findall(r"<title[^>]*>(.*?)</title>", page) if text.startswith("Divergence"))
    assert "scaffold" in divergence and "centralized" not in divergence


def test_that_local_sends_no_steps_is_no_warning(tmp_path: Path) -> None:
    for name in ("local", "fedals"):
        folder = write(tmp_path / name, algorithm=name)
        log = (folder / "metrics.jsonl").read_text().splitlines()
        lines = [json.loads(line) | {"steps": 4, "steps_counted": 1} for line in log]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = write_report([tmp_path / "local", tmp_path / "fedals"], tmp_path / "report.html").read_text()
    assert "25.0 % of the local steps reached the server." in page


def test_few_clients_and_classes_have_their_names_at_the_axes(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", clients=3)
    listed = json.loads((folder / "clients.json").read_text())
    names = ["Basel", "University Hospital of Oslo", "Lyon"]
    named = [client | {"name": name} for client, name in zip(listed, names, strict=True)]
    (folder / "clients.json").write_text(json.dumps(named))
    with (folder / "run.toml").open("a") as file:
        file.write('[resolved]\nlabels = ["healthy", "mild", "ill"]\n')
    text = write_report(folder, tmp_path / "a.html").read_text()
    split = text.partition('id="split"')[2].partition("<h2")[0]
    assert all(name in split for name in ("Basel", "Univers…f Oslo", "Lyon", "healthy", "mild", "ill"))
    assert '"ticks":["Basel","Univers\\u2026f Oslo","Lyon"],"classes":["healthy","mild","ill"]' in text
    (folder / "clients.json").write_text(
        json.dumps([client | {"name": f"client-{i}"} for i, client in enumerate(listed)])
    )
    assert '"ticks":[]' in write_report(folder, tmp_path / "b.html").read_text()


def test_a_run_keeps_the_names_of_few_classes(tmp_path: Path) -> None:
    from apiece.config.settings import Config
    from apiece.experiment.launch import run_config
    from apiece.report.results import read_run

    small = {"rounds": 1, "steps": "1", "clients": 2, "split": "iid", "model": "softmax_regression"}
    for name, labels, kept in (("words", "no yes", ["no", "yes"]), ("numbers", "0 1", None)):
        no, yes = labels.split()
        lines = [f"{i % 7},{yes if i % 2 else no}" for i in range(40)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,label", *lines]))
        run_config(Config(**small, data=str(tmp_path / f"{name}.csv"), out=str(tmp_path / name)))
        assert read_run(tmp_path / name).resolved.get("labels") == kept
