"""FedCOG's cards run the rounds before FedCOG begins once for all rows: each cell stays the run that it is alone."""

from __future__ import annotations

import pytest

from apiece.papers.fedcog import _setup as shared
from apiece.papers.fedcog._work import later
from apiece.reproduce import find

SETTINGS = {
    **shared.SETUP, "data": "digits", "model": "mlp", "clients": 3, "rounds": 4, "steps": "2", "batch": 8,
    "augment": "none", "split": "dirichlet_capped(0.5)", "checkpoint_every": 2, "seed": 1, "lr": 0.2,
}  # fmt: skip
WAITING = "wait=2, samples=16"
ROWS = (
    f"fedcog({WAITING}, steps=2, kd_weight=2)", f"fedcog({WAITING}, steps=3, dis=0, kd_weight=2)",
    f"scaffold + fedcog({WAITING}, steps=2, kd_weight=5)",
)  # fmt: skip


def cells(tmp_path, *rows):
    """What is read off the cells of these rows, which share a column and a seed."""
    return [
        later(SETTINGS | {"algorithm": row}, tmp_path / "runs" / "fedcog" / f"row-{place}" / "seed-1")
        for place, row in enumerate(rows)
    ]


@pytest.mark.slow
def test_each_cell_is_the_run_that_it_is_alone(tmp_path):
    alone = [shared.WORK(SETTINGS | {"algorithm": row}, tmp_path / f"alone-{n}") for n, row in enumerate(ROWS)]
    assert cells(tmp_path, *ROWS) == alone, "bit for bit"
    assert len({str(values) for values in alone}) == len(ROWS), "the rows differ, so equality says something"
    begun = sorted(path.name.rpartition("-")[0] for path in (tmp_path / "runs" / "fedcog").glob("* after *"))
    assert begun == ["fedcog after 2 rounds", "scaffold + fedcog after 2 rounds"], "each beginning is run once"


@pytest.mark.slow
def test_hard_labels_differ_and_go_on_from_the_same_rounds(tmp_path):
    soft, hard = cells(tmp_path, ROWS[0]), later(
        SETTINGS | {"algorithm": ROWS[0], "hard": True}, tmp_path / "runs" / "fedcog" / "hard" / "seed-1"
    )
    assert soft[0]["curve"][1][:2] == hard["curve"][1][:2] and soft[0]["curve"] != hard["curve"]


@pytest.mark.slow
@pytest.mark.parametrize("row", ("fedavg", "fedcog(wait=9)", "fedcog(steps=2, samples=16)"))
def test_a_row_without_such_a_beginning_is_a_run(tmp_path, row):
    assert cells(tmp_path, row) == [shared.WORK(SETTINGS | {"algorithm": row}, tmp_path / "alone")]
    assert [path.name for path in (tmp_path / "runs" / "fedcog").iterdir()] == ["row-0"]


@pytest.mark.slow
def test_a_copy_that_was_cut_short_is_made_again(tmp_path):
    (tmp_path / "runs" / "fedcog" / "row-0" / "seed-1.tmp" / "checkpoints").mkdir(parents=True)
    (tmp_path / "runs" / "fedcog" / "row-0" / "seed-1.tmp" / "run.toml").write_text("half")
    assert cells(tmp_path, ROWS[0])[0]["curve"][0] == [1, 2, 3, 4]


def test_cards_that_wait_alike_share_their_beginning():
    """What FedCOG's tables on CIFAR-10 have before FedCOG begins is equal, and so is run once for all of them."""
    places = {"table5": "4: of both models, soft", "table10": "100 steps", "figure3": "FedCOG"}
    made = [
        find.card(f"fedcog-{name}").settings("cpu", row, "beta 0.1" if name == "figure3" else "CIFAR-10 NIID-1")
        for name, row in places.items()
    ]
    begun = [{**settings, "algorithm": "fedcog(wait=20)", "rounds": 20} for settings in made]
    assert begun[0] == begun[1] == begun[2]
