"""Each notebook runs as it stands, draws its figures, and ends with the numbers that its text claims."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from support import ROOT
from support.notebooks import cells, run

FOLDER = ROOT / "docs" / "notebooks"
FIGURES = {"first-run": 2, "own-data": 2, "write-an-algorithm": 1, "personalization": 1, "what-differs": 4}


def last(curves: np.ndarray) -> np.ndarray:
    return curves[:, -1]


def first_run(left: dict[str, Any]) -> None:
    assert left["accuracy"] > 0.8 and (left["folder"] / "first" / "report.html").is_file()
    assert (left["last"]["scaffold"] > left["last"]["fedavg"]).all()
    assert left["sent"]["scaffold"] == 2 * left["sent"]["fedavg"]


def own_data(left: dict[str, Any]) -> None:
    assert left["last"]["global_accuracy"] > 0.85 > 0.65 > left["majority"]
    assert left["last"]["global_auroc"] > 0.9 and left["r2"] > 0.7 and left["right"] == left["last"]["global_accuracy"]
    malignant = left["share"]["malignant"] / left["share"].sum(axis=1)
    assert malignant.max() > 0.9 and malignant.min() < 0.1


def write_an_algorithm(left: dict[str, Any]) -> None:
    accuracy = {name: last(curves) for name, curves in left["accuracy"].items()}
    gain = accuracy["calibrated"] - accuracy["fedavg"]
    assert (gain > 0).all() and 0.02 < gain.mean() < 0.03
    assert accuracy["scaffold"].mean() > accuracy["scaffold + calibrated"].mean()
    assert Path("runs/both/report.html").is_file()


def personalization(left: dict[str, Any]) -> None:
    personal, served = left["personal"], left["served"]
    one, alone, head, tuned = personal.values()
    assert min(head, tuned) > max(one, alone) + 0.02 and min(one, alone) > 0.85
    assert served["fedavg + fine_tune(epochs=5)"].accuracy > served["fedavg"].accuracy > 0.7
    assert served["fedavg_p(personal=head)"].accuracy > 0.7 and left["more"][80] > served["fedavg"].accuracy
    assert left["right"] == pytest.approx(left["head"].accuracy)


def what_differs(left: dict[str, Any]) -> None:
    drift, end, table = left["measured"]["gradient_dissimilarity"], left["measured"]["global_accuracy"], left["table"]
    assert min(drift["dirichlet(0.1)"], drift["shards(2)"]) > drift["quantity(0.5)"] > drift["iid"]
    assert max(end["dirichlet(0.1)"], end["shards(2)"]) < min(end["quantity(0.5)"], end["iid"]) and end.min() > 0.7
    assert table["global"]["scaffold"] > table["global"]["fedavg"]
    assert table["personal"]["fedper"] > table["personal"]["fedavg"]


@pytest.mark.slow
@pytest.mark.parametrize("claims", [first_run, own_data, write_an_algorithm, personalization, what_differs])
def test_what_a_notebook_says_holds(claims, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    name, shown = claims.__name__.replace("_", "-"), []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda: shown.append(plt.gcf()) or plt.close("all"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    try:
        left = run(FOLDER / f"{name}.md")
        claims(left)
    finally:
        sys.modules.pop("calibrated", None)
        os.chdir(tmp_path)
    assert len(shown) == FIGURES[name]


def test_every_notebook_is_tested():
    assert {page.stem for page in FOLDER.glob("*.md")} == set(FIGURES)
    assert all(len(cells(FOLDER / f"{name}.md")) > 4 for name in FIGURES)
