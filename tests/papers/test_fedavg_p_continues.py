"""A cell of FedAvg-P's cards that was stopped goes on, and has the same values."""

from __future__ import annotations

import pytest

from apiece.papers.fedavg_p import _setup as setup

CELL = setup.SETUP | setup.SMOKE | {"rounds": 12, "every": 5, "checkpoint_every": 2, "seed": 0, "workers": 1}
MORE = {"algorithm": "scaffold_p(personal=y)"}, {"algorithm": "local", "shared": 1}


@pytest.mark.parametrize("more", MORE, ids=str)
def test_a_stopped_cell_goes_on(tmp_path, monkeypatch, more):
    whole = setup.work(CELL | more, tmp_path / "whole")
    measured = setup.squared_norms
    calls = []

    def stopping(*of):
        calls.append(of)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return measured(*of)

    monkeypatch.setattr(setup, "squared_norms", stopping)
    with pytest.raises(KeyboardInterrupt):
        setup.work(CELL | more, tmp_path / "parts")
    assert (tmp_path / "parts" / "run.toml").is_file()
    assert setup.work(CELL | more, tmp_path / "parts") == whole
    assert len(calls) < 7 + len(whole["curve"][0]), "it did not begin anew"
