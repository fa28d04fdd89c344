"""Every card runs at its smallest scale without real data, and is as a card should be."""

from __future__ import annotations

from pathlib import Path

import pytest

import apiece.papers
from apiece.reproduce import find, ledger
from apiece.reproduce.running import Place, reproduce
from apiece.reproduce.standing import standing

NAMES = find.names()


@pytest.mark.parametrize("name", NAMES)
def test_a_card_reads_as_a_section(name):
    card, file = find.card(name), Path(apiece.papers.__file__).parent / f"{name.replace('-', '/', 1)}.py"
    assert len(file.read_text().splitlines()) <= 80
    assert {"smoke", "cpu"} <= set(card.scales) <= {"smoke", "cpu", "paper"}
    assert not any("smoke" in claim.scales for claim in card.claims)
    for key, rows in card.published.items():
        assert key in card.numbers and set(rows) <= set(card.rows)
        assert all(len(line) == len(card.columns) for line in rows.values())
    for scale in card.scales:
        assert all(set(card.settings(scale, *cell)) - {"seed"} for cell in card.cells(scale))
        assert card.scale(scale).seeds == (0, 1, 2) or scale == "smoke" or "seed" in card.scale(scale).about


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_card_runs(name, tmp_path, monkeypatch):
    monkeypatch.delenv("APIECE_DATA", raising=False)
    page = reproduce(name, "smoke", Place(tmp_path / "out", tmp_path / "runs"), say=lambda text: None)
    card = find.card(name)
    now = standing(card, ledger.table(card, ledger.read(page.with_suffix(".jsonl")), "smoke"), "smoke")
    assert now.done == now.asked == len(card.cells("smoke"))
    text = page.read_text()
    known = {key for line in ledger.read(page.with_suffix(".jsonl")) for key in line.values}
    assert known and all(f"**{number.title}**" in text for key, number in card.numbers.items() if key in known)
    assert card.figure is None or ".svg)" in text
