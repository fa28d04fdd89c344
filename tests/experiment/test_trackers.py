"""A tracker has every round once, whatever happened to the run, and what happens to it does not stop the run."""

from __future__ import annotations

import csv
import json
import sqlite3
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.outer import TINY, cli, metrics, run, sentence

from apiece import federate
from apiece.experiment import saved, track_files, tracker

pytestmark = pytest.mark.filterwarnings("ignore")  # of the trackers' own packages
ROUNDS = 5


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_report: None) -> Path:
    """A folder where trackers put what does not go into the run's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    return tmp_path


# --- what each tracker has ------------------------------------------------------------------------------------------
def of_csv(folder: Path) -> list[tuple[int, float]]:
    with open(folder / "metrics.csv", newline="") as file:
        return [(int(row["round"]), float(row["global_accuracy"])) for row in csv.DictReader(file)]


def of_tensorboard(folder: Path) -> list[tuple[int, float]]:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    return [(event.step, event.value) for event in events.Scalars("global_accuracy")]


def of_mlflow(folder: Path) -> list[tuple[int, float]]:
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    note = json.loads((folder / "trackers.json").read_text())["mlflow"]
    found = MlflowClient(note["uri"]).get_metric_history(note["id"], "global_accuracy")
    return sorted((one.step, one.value) for one in found)


def blocks(path: Path) -> Iterator[bytes]:
    """The records of a .wandb file: LevelDB's log format after seven bytes."""
    data, at, record = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        if 32768 - at % 32768 < 7 or not kind:
            at += 32768 - at % 32768
            continue
        record, at = record + data[at + 7 : at + 7 + size], at + 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def of_wandb(folder: Path) -> list[tuple[int, float]]:
    """The rounds in all offline folders of one run."""
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2 as format

    found = []
    name = json.loads((folder / "trackers.json").read_text())["wandb"]["id"]
    for path in sorted((folder / "wandb").glob(f"offline-run-*/run-{name}.wandb")):
        for data in blocks(path):
            record = format.Record()
            record.ParseFromString(data)
            items = {"/".join(i.nested_key) or i.key: i.value_json for i in record.history.item}
            if "global_accuracy" in items:
                found.append((int(items["_step"]), float(items["global_accuracy"])))
    return found


def of_trackio(folder: Path) -> list[tuple[int, float]]:
    pytest.importorskip("trackio")
    (path,) = Path("trackio").glob("apiece*.db")
    with sqlite3.connect(path) as base:
        rows = base.execute("select step, metrics from metrics order by step").fetchall()
    values = [(step, json.loads(text)) for step, text in rows]
    return [(step, value["global_accuracy"]) for step, value in values if "global_accuracy" in value]


PACKAGE = {"csv": "csv", "tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb", "trackio": "trackio"}
READ: dict[str, Callable[[Path], list[tuple[int, float]]]] = {
    "csv": of_csv, "tensorboard": of_tensorboard, "mlflow": of_mlflow, "wandb": of_wandb, "trackio": of_trackio,
}  # fmt: skip


def expected(folder: Path) -> list[tuple[int, Any]]:
    return [(info["round"], pytest.approx(info["global_accuracy"])) for info in metrics(folder)]


class Cut(Exception):
    """The power is cut here."""


def cut_after(monkeypatch: pytest.MonkeyPatch, round: int) -> None:
    """The run is cut off as the checkpoint of this round is due, which is then not written."""
    save = saved.save

    def stop(folder: Path, digest: str, state: Any, *rest: Any) -> None:
        if state.server.round == round:
            raise Cut
        save(folder, digest, state, *rest)

    monkeypatch.setattr(saved, "save", stop)


@pytest.mark.slow
@pytest.mark.parametrize("name", READ)
def test_a_run_that_was_cut_off_and_went_on_is_one_run_with_each_round_once(name, here, monkeypatch):
    """Round 3 is tracked, and is done again, as the newest checkpoint is of round 2."""
    pytest.importorskip(PACKAGE[name])
    settings: dict[str, Any] = {"rounds": ROUNDS, "checkpoint_every": 2, "track": name, "out": "one"}
    with monkeypatch.context() as patch, pytest.raises(Cut):
        cut_after(patch, 4)
        run(**settings)
    assert cli("resume", "one").code == 0
    assert READ[name](here / "one") == expected(here / "one") and len(metrics(here / "one")) == ROUNDS
    again = cli("resume", "one", "--rounds", ROUNDS + 2)
    assert again.code == 0, again
    assert [number for number, _ in READ[name](here / "one")] == list(range(1, ROUNDS + 3))
    assert "failed" not in again.err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlflow", "wandb", "trackio"])
def test_each_seed_is_a_run_of_its_own_in_one_group(name, here):
    pytest.importorskip(PACKAGE[name])
    ended = run("--seeds", "0,1", track=name, out="all")
    assert ended.code == 0 and "failed" not in ended.err, ended
    notes = [json.loads((here / "all" / f"seed-{s}" / "trackers.json").read_text())[name] for s in (0, 1)]
    assert notes[0]["id"] != notes[1]["id"]
    if name == "mlflow":
        from mlflow.tracking import MlflowClient

        client = MlflowClient(notes[0]["uri"])
        runs = [client.get_run(note["id"]) for note in notes]
        assert len({one.data.tags["apiece.group"] for one in runs}) == 1
        assert [one.data.params["seed"] for one in runs] == ["0", "1"]
        assert all(one.info.status == "FINISHED" for one in runs)
        assert [file.path for file in client.list_artifacts(notes[0]["id"])] == ["clients.csv"]


def test_tables_have_every_round_and_every_client(here):
    """Also a round that is measured has more columns than the one before."""
    assert run(track="csv", out="one", eval_every=2).code == 0
    with open("one/metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["global_accuracy"] != "" for row in rows] == [False, True, True]
    with open("one/clients.csv", newline="") as file:
        clients = list(csv.DictReader(file))
    assert [row["client"] for row in clients] == [f"client-{i}" for i in range(TINY["clients"])]
    kept = {one["name"]: one["accuracy"] for one in json.loads(Path("one/clients.json").read_text())}
    assert {row["client"]: float(row["accuracy"]) for row in clients} == kept


def test_from_python_and_a_run_that_is_ended_early(here):
    """What is measured at the end joins the last round's row."""
    settings = {**TINY, "track": "csv", "out": "one"}
    result = federate(on_round=lambda info: "stop" if info["round"] == 2 else None, **settings)
    assert [number for number, _ in of_csv(Path("one"))] == [1, 2]
    with open("one/metrics.csv", newline="") as file:
        last = list(csv.DictReader(file))[-1]
    assert float(last["adapted_accuracy"]) == result.metrics[-1]["adapted_accuracy"]


# --- what goes wrong ------------------------------------------------------------------------------------------------
def test_a_tracker_that_fails_is_told_everything_after_the_last_round(here, monkeypatch):
    real, calls = track_files._CsvRun.round, []

    def fail(self: Any, number: int, numbers: Any) -> None:
        calls.append(number)
        if len(calls) == 2:
            raise OSError("the disk is\nfull")
        real(self, number, numbers)

    monkeypatch.setattr(track_files._CsvRun, "round", fail)
    ended = run(track="csv", out="one", rounds=ROUNDS)
    assert ended.code == 0 and of_csv(here / "one") == expected(here / "one")
    said = [line for line in ended.err.splitlines() if "csv" in line]
    assert said == [
        "apiece: csv failed (OSError: the disk is), and is tried again after the last round: the run goes on."
    ]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"csv": 5}', "[" * 5000, "\xff"])
def test_damaged_notes_are_refused_before_anything_is_trained(text, here):
    assert run(track="csv", out=here / "run").code == 0
    before, notes = metrics(here / "run"), here / "run" / "trackers.json"
    notes.write_bytes(text.encode("latin-1"))
    again = ("resume", here / "run", "--rounds", 5)
    sentence(cli(*again), "trackers.json is damaged", "put it back from a copy, or remove it, and they begin anew.")
    assert metrics(here / "run") == before
    notes.unlink()
    assert cli(*again).code == 0 and [number for number, _ in of_csv(here / "run")] == [1, 2, 3, 4, 5]


def test_a_tracker_that_fails_for_good_is_named_once(here, monkeypatch):
    monkeypatch.setattr(track_files._CsvRun, "round", lambda *_: 1 / 0)
    ended = run(track="csv", out="one")
    assert ended.code == 0 and ended.err.count("csv failed") == 1 and len(metrics(here / "one")) == TINY["rounds"]


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb", "trackio"])
def test_a_package_that_is_missing_is_one_sentence_before_the_run_begins(name, here, monkeypatch):
    def missing(package: str) -> None:
        raise ImportError(package)

    monkeypatch.setattr(tracker, "import_module", missing)
    sentence(run(track=name, out="one"), "is not installed", f'pip install ".[{name}]"', "leave it out of --track")
    assert not Path("one").exists()


BAD = [
    ({"track": "csvv", "out": "one"}, "unknown name 'csvv'", "did you mean 'csv'"),
    ({"track": "csv(3)", "out": "one"}, "csv(3)"),
    ({"track": "wandb(mode=on)", "out": "one"}, "mode"),
    ({"track": "csv, mlflow", "out": "one"}, "expected the end or '+'"),
    ({"track": "csv"}, "track=csv needs out"),
    ({"track": "csv + csv()", "out": "one"}, "names csv twice"),
]


@pytest.mark.parametrize(("settings", "said"), [(s, said) for s, *said in BAD], ids=lambda v: str(v)[:30])
def test_bad_input_is_one_sentence(settings, said):
    if "wandb" in settings["track"]:
        pytest.importorskip("wandb")
    sentence(run(**settings), *said)
    assert not Path("one").exists()


@pytest.mark.slow
@pytest.mark.parametrize("uri", ["sqlite:////proc/nowhere/all.db", "http://127.0.0.1:9"])
def test_a_place_where_mlflow_cannot_be_used_is_one_sentence(uri, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    sentence(run(track=f'mlflow(uri="{uri}")', out="one"), "MLflow cannot be used at", uri)
    assert not Path("one").exists()
