"""A client that a run never saw: which files hold its samples, and what is said of those that do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.outer import TINY, cli, sentence

from apiece.config.assemble import assemble
from apiece.config.settings import Config
from apiece.errors import UserError
from apiece.experiment.newcomer import newcomer
from apiece.experiment.personalize import Served, opened

TABLE = {"data": "run.csv", "target_column": "cost", "client_column": "site", "split": "natural", "model": "mlp"}
ROWS = [f"{20 + i % 7},{'AB'[i % 2]},{i % 5 / 5},{'xy'[i % 2]}" for i in range(40)]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("run.csv").write_text("\n".join(["age,ward,cost,site", *ROWS]))
    return tmp_path


def images(folder: str, classes: str, shade: int) -> None:
    for name in classes:
        Path(folder, name).mkdir(parents=True)
        for number in range(6):
            Image.fromarray(np.full((9, 7), shade + number, np.uint8)).save(Path(folder, name, f"{number}.png"))


def test_text_that_the_run_does_not_know_is_told(here, caplog):
    Path("new.csv").write_text("age,ward,cost\n30,Z,0.1\n31,A,0.2")
    pool, _ = newcomer(assemble(Config(**TABLE)), Path("new.csv")).pool
    assert "'ward': the run's own data have no Z, which counts as none of their texts (1 of 2 rows)" in caplog.text
    assert pool.shape == (2, 3) and pool[0, 1:].tolist() == [0, 0] and pool[1, 1:].tolist() == [1, 0]


def test_labels_that_are_codes_are_known_by_what_is_written(here):
    """A new client's file of 10 and 11 alone has no code in it, and its labels are the run's texts all the same."""
    rows = [f"{20 + i % 7},{('01', '1', '10', '11')[i % 4]},{'xy'[i % 2]}" for i in range(40)]
    Path("run.csv").write_text("\n".join(["age,code,site", *rows]))
    experiment = assemble(Config(data="run.csv", target_column="code", client_column="site", model="mlp"))
    Path("new.csv").write_text("age,code\n30,10\n31,11\n32,10")
    assert newcomer(experiment, Path("new.csv")).pool[1].tolist() == [2, 3, 2]
    Path("new.csv").write_text("age,code\n30,01\n31,1\n32,10")
    assert newcomer(experiment, Path("new.csv")).pool[1].tolist() == [0, 1, 2]
    Path("new.csv").write_text("age,code\n30,12\n31,11")
    with pytest.raises(UserError, match="'12' is no known label; allowed: 01, 1, 10, 11"):
        newcomer(experiment, Path("new.csv"))
    Path("new.csv").write_text("age,code,split\n30,10,train\n31,11,val\n32,10,test")
    with pytest.raises(UserError, match="new.csv, column 'split': it says by the words 'train' and 'test'"):
        newcomer(experiment, Path("new.csv"))


def test_the_rows_of_a_file_that_are_held_out_are_found_again(here):
    """As the page of run folders says: a mask of all rows, true for the test samples, which are in their order."""
    words = "--data run.csv --target-column cost --client-column site --rounds 1 --steps 1 --out one"
    assert cli("run", *words.split()).code == 0
    data = opened(Path("one")).dataset
    assert data is not None and data.held is not None and data.targets_test is not None
    written = np.array([float(row.split(",")[2]) for row in ROWS])
    assert len(data.held) == 40 and np.array_equal(written[data.held], data.targets_test)


def test_files_of_another_kind_are_refused_by_what_the_run_reads(here):
    experiment = assemble(Config(**TABLE))
    Path("new.jsonl").write_text('{"text": "a", "label": "b"}')
    with pytest.raises(UserError, match="new.jsonl: the samples of a client of this run are a file .csv"):
        newcomer(experiment, Path("new.jsonl"))
    with pytest.raises(UserError, match="nowhere.csv: no such file"):
        newcomer(experiment, Path("nowhere.csv"))
    images("new", "ab", 0)
    with pytest.raises(UserError, match="new: the samples of a client of this run are a file .csv, .* .npz.$"):
        newcomer(experiment, Path("new"))


def test_a_table_is_no_client_of_a_run_on_images(here):
    """It was read as one, and what was wrong with its columns was said."""
    Path("new.csv").write_text("age,label\n1,2")
    with pytest.raises(UserError, match="new.csv: the samples of a client of this run are a file .npz, or a folder of"):
        newcomer(assemble(Config(data="digits", model="mlp")), Path("new.csv"))


def test_a_folder_of_images_is_a_client_of_a_run_on_images(here):
    """Its classes have the run's numbers, whichever of them it has, and its images the run's size."""
    images("run", "abc", 0)
    experiment = assemble(Config(data="run", resize="8", split="iid", clients=2, model="mlp"))
    images("new/train", "bc", 100)
    images("new/test", "c", 200)
    place = newcomer(experiment, Path("new"))
    assert place.pool[0].shape == (12, 1, 8, 8) and place.pool[1].tolist() == [1] * 6 + [2] * 6
    assert place.test_pool[1].tolist() == [2] * 6
    images("flat", "ad", 0)
    with pytest.raises(UserError, match="'d' is no known label; allowed: a, b, c"):
        newcomer(experiment, Path("flat"))


def test_a_model_that_was_not_measured_says_so():
    served = Served({}, "the global model", 0, 9, 0, 0.0, {"accuracy": 0.5}, 4)
    assert str(served).endswith("accuracy 0.500 on its 4 test samples")
    assert str(served._replace(values={}, samples=0)).endswith("; not measured, without test samples")


@pytest.mark.slow
def test_a_run_whose_settings_were_edited_is_not_continued(tmp_path, no_report):
    words = [w for k, v in TINY.items() for w in (f"--{k.replace('_', '-')}", v)]
    assert cli("run", *words, "--out", tmp_path / "run").code == 0
    for command in ("export", "personalize"):  # which make the folder of what they write
        more = ("--data", tmp_path / "new.npz") if command == "personalize" else ()
        np.savez(tmp_path / "new.npz", x_train=np.zeros((4, 8, 8), np.uint8), y_train=np.arange(4))
        out = tmp_path / command / "deep" / "model.safetensors"
        ended = cli(command, tmp_path / "run", *more, "--out", out)
        assert ended.code == 0 and out.is_file(), ended
    file = tmp_path / "run" / "run.toml"
    file.write_text("".join("lr = 0.7\n" if x.startswith("lr = ") else x for x in file.read_text().splitlines(True)))
    assert "lr = 0.7" in file.read_text()
    sentence(cli("resume", tmp_path / "run", "--rounds", 9), "run.toml has other settings than its run began with")
    sentence(cli("export", tmp_path / "run", "--out", out), "run.toml has other settings than its run began with")
