"""Cells of one paper that have the same settings have one run, whatever their cards: it is made once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from apiece.reproduce import find, ledger
from apiece.reproduce.running import Place, reproduce
from apiece.reproduce.work import run_folder


def cells(scale):
    """How many cells have each folder, of all cards at a scale."""
    every = [
        run_folder(Path(name.partition("-")[0]), card.settings(scale, *cell) | {"seed": 0})
        for name in find.names() if scale in (card := find.card(name)).scales for cell in card.cells(scale)
    ]  # fmt: skip
    return Counter(every)


def test_tables_that_repeat_a_cell_of_another_share_its_run():
    cards = {name: find.card(name) for name in ("fedinit-table4", "fedinit-table6", "fedinit-table8")}
    column = "10 %-100, Dir-0.1"
    fedavg = [
        run_folder(Path("fedinit"), cards[name].settings("paper", row, column) | {"seed": 1})
        for name, row in zip(cards, ("ResNet-18-GN: FedAvg", "FedAvg", "FedAvg"), strict=True)
    ]
    assert len(set(fedavg)) == 1
    assert sum(cells("paper").values()) - len(cells("paper")) > 50, "so many runs are not made twice"


def test_what_changes_a_result_changes_the_folder():
    settings = find.card("fedcog-table5").settings("cpu", "4: of both models, soft", "CIFAR-10 NIID-1") | {"seed": 1}
    own = run_folder(Path("fedcog"), settings)
    same = ({"device": "cuda"}, {"workers": 3}, {"checkpoint_every": 7}, {"data_dir": "elsewhere"})
    other = ({"hard": True}, {"lr": 0.02}, {"seed": 2}, {"rounds": 25})
    assert {run_folder(Path("fedcog"), settings | more) for more in same} == {own}
    assert own not in {run_folder(Path("fedcog"), settings | more) for more in other}


@pytest.mark.slow
def test_a_run_that_another_card_has_made_is_not_made_again(tmp_path, monkeypatch):
    monkeypatch.delenv("APIECE_DATA", raising=False)
    place = Place(tmp_path / "out", tmp_path / "runs")
    shared = (("fedals-table1", "FedAvg"), ("fedals-table2", "alpha = 1"))
    pages = [reproduce(name, "smoke", place, only=row, say=lambda text: None) for name, row in shared]
    first, second = (ledger.read(page.with_suffix(".jsonl"))[0] for page in pages)
    assert first.values == second.values and first.made == second.made
    (folder,) = (tmp_path / "runs" / "fedals").glob("fedavg-*/seed-0")
    assert len([json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]) == 2
    assert sum(path.suffix != ".json" for path in (tmp_path / "runs" / "fedals").glob("*/*")) == 1
