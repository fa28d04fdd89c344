"""What a run is stays what it is: its log, what it started from, its files' places, and which settings count."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from support.outer import DIVERGES, TINY, cli, config, content, draw_no_page_of_one_run, metrics, run, sentence

from apiece.config.assemble import assemble
from apiece.config.settings import Config
from apiece.config.tables import to_table
from apiece.data.federation import Federation, MadeFederation
from apiece.data.split import Split
from apiece.errors import UserError
from apiece.experiment import folders
from apiece.experiment import identity as experiment_identity
from apiece.experiment import run as module_of_runs
from apiece.experiment.launch import federate, run_config
from apiece.experiment.run import execute
from apiece.language.schedules import Cosine, Exponential, Steps
from apiece.report.page import write_report
from apiece.report.results import read_run
from apiece.storage.log import Log


# --- the data --------------------------------------------------------------------------------------------------------
def test_a_run_goes_on_with_its_own_data_alone(tmp_path, no_report):
    x, y = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32), np.arange(100) % 2
    settings = {"clients": 4, "rounds": 2, "steps": 1, "out": tmp_path / "run"}
    model = torch.nn.Linear(4, 2)
    first = federate(model, (x, y), **settings)
    before = content(tmp_path / "run")
    for other in ((x + 1, y), (x, 1 - y), (x[:90], y[:90])):
        with pytest.raises(UserError, match="a run on other data"):
            federate(model, other, resume=True, **settings)
    assert content(tmp_path / "run") == before
    assert torch.equal(federate(model, (x, y), resume=True, **settings).server.params, first.server.params)


def test_clients_that_are_ready_are_known_again(tmp_path, no_report):
    pool = torch.randn(40, 8), torch.arange(40) % 3
    halves, settings = list(torch.arange(40).split(20)), {"rounds": 1, "steps": 1, "out": tmp_path / "run"}
    place = Federation(pool, pool, halves, halves, ["a", "b"])
    federate(torch.nn.Linear(8, 3), clients=place, **settings)
    for other in (replace(place, train=halves[::-1]), replace(place, names=["a", "c"]), replace(place, unseen=(1,))):
        with pytest.raises(UserError, match="a run on other data"):
            federate(torch.nn.Linear(8, 3), clients=other, resume=True, **settings)


def test_clients_that_are_made_are_known_again(tmp_path, no_report):
    """By the samples of the first that trains: nothing was noted of them."""
    make = lambda client: (torch.ones(10, 8) * client, torch.arange(10) % 2)
    settings = {"steps": 1, "out": tmp_path / "run", "resume": True}
    place = MadeFederation(make, 6, 10, make(9), unseen=(0,))
    federate(torch.nn.Linear(8, 2), clients=place, rounds=1, **settings)
    shifted = lambda client: (make(client)[0] + 1, make(client)[1])
    named = replace(place, names=["a", "b", "c", "d", "e", "f"])
    more = replace(place, count=7, names=())
    for other in (replace(place, make=shifted), more, named, replace(place, test_pool=make(8))):
        with pytest.raises(UserError, match="a run on other data"):
            federate(torch.nn.Linear(8, 2), clients=other, rounds=2, **settings)
    assert federate(torch.nn.Linear(8, 2), clients=place, rounds=2, **settings).metrics[-1]["round"] == 2


def test_a_file_of_data_that_changed_is_refused(tmp_path, no_report):
    arrays = {"x_train": np.random.default_rng(0).normal(size=(100, 4)), "y_train": np.arange(100) % 2}
    np.savez(tmp_path / "data.npz", **arrays)
    assert run(data=tmp_path / "data.npz", out=tmp_path / "run", rounds=1).code == 0
    served = ("--data", tmp_path / "data.npz", "--out", tmp_path / "model.safetensors")
    assert cli("personalize", tmp_path / "run", *served).code == 0
    np.savez(tmp_path / "data.npz", **arrays | {"y_train": 1 - arrays["y_train"]})
    sentence(cli("resume", tmp_path / "run"), "a run on other data: give those that it began with, or begin another.")
    sentence(cli("personalize", tmp_path / "run", *served), "a run on other data")
    sentence(cli("export", tmp_path / "run", *served[2:]), "a run on other data")
    sentence(cli("compare", tmp_path / "run"), "a run on other data")  # its reference rows would be trained on these
    assert not list(tmp_path.glob("local-*"))


def test_new_seeds_and_cells_are_not_begun_beside_finished_ones_of_other_data(tmp_path, no_report):
    """A run of two seeds, and a grid, stopped after the first; then their data changed."""
    arrays = {"x_train": np.random.default_rng(0).normal(size=(100, 4)), "y_train": np.arange(100) % 2}
    np.savez(tmp_path / "data.npz", **arrays)
    settings = TINY | {"data": tmp_path / "data.npz", "rounds": 1}
    words = [word for key, value in settings.items() for word in (f"--{key}", value)]
    grid = ["grid", "--rows", "fedavg, scaffold", "--columns", "nothing", *words, "--out", tmp_path / "grid"]
    assert run("--seeds", "0,1", **settings, out=tmp_path / "run").code == 0
    assert cli(*grid).code == 0
    for other in ("run/seed-1", "grid/scaffold"):
        shutil.rmtree(tmp_path / other)
    np.savez(tmp_path / "data.npz", **arrays | {"y_train": 1 - arrays["y_train"]})
    for command in (["resume", tmp_path / "run"], grid):
        assert "a run on other data" in cli(*command).err
    assert not (tmp_path / "run" / "seed-1").exists() and not (tmp_path / "grid" / "scaffold").exists()
    np.savez(tmp_path / "data.npz", **arrays)
    for command in (["resume", tmp_path / "run"], grid):
        assert cli(*command).code == 0


def test_a_run_toml_with_a_number_for_words_is_one_sentence(tmp_path):
    (tmp_path / "run.toml").write_text("[config]\nalgorithm = 5\nserver = [1]\n")
    for words in (["resume"], ["export", "--out", tmp_path / "model.safetensors"]):
        sentence(cli(words[0], tmp_path, *words[1:]), "run.toml: server=[1] is not allowed")


@pytest.mark.parametrize("text", ["", "[config]\n"])
def test_a_run_toml_that_is_empty_is_said_to_be(text, tmp_path, no_report):
    assert run(out=tmp_path / "run", rounds=1).code == 0
    (tmp_path / "run" / "run.toml").write_text(text)
    for words in (["resume"], ["export", "--out", tmp_path / "model.safetensors"]):
        sentence(cli(words[0], tmp_path / "run", *words[1:]), "run.toml has no settings: put the file back")


# --- the log ---------------------------------------------------------------------------------------------------------
def spoilt(folder: Path, line: int) -> Path:
    """The log of a run of four rounds, with a line that is none."""
    assert run(out=folder, rounds=4).code == 0
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[line] = lines[line][:20] + "\n"
    path.write_text("".join(lines))
    return path


def test_an_unreadable_line_of_the_log_is_refused_and_nothing_is_lost(tmp_path, no_report):
    """Every checkpoint counts on it, so that the run does not go on; its models have nothing to do with it."""
    path = spoilt(tmp_path / "run", 1)
    before = content(tmp_path / "run")
    sentence(cli("resume", tmp_path / "run"), f"{path} lacks round 2", "back from a copy")
    assert cli("export", tmp_path / "run", "--out", tmp_path / "model.safetensors").code == 0
    assert content(tmp_path / "run") == before


def test_a_torn_last_line_is_done_again(tmp_path, no_report):
    path = spoilt(tmp_path / "run", 3)
    before = content(tmp_path / "run")
    assert cli("export", tmp_path / "run", "--out", tmp_path / "model.safetensors").code == 0
    assert content(tmp_path / "run") == before
    ended = cli("resume", tmp_path / "run")
    assert ended.code == 0 and f"{path} lacks round 4. The checkpoint of round 3 is taken instead." in ended.err
    assert [info["round"] for info in metrics(tmp_path / "run")] == [1, 2, 3, 4]


def test_export_leaves_the_folder_as_it_is(tmp_path, no_report):
    """The newest checkpoint is damaged, so that the one before serves; only `resume` sets it aside."""
    folder = tmp_path / "run"
    assert run(out=folder, rounds=4).code == 0
    newest = sorted((folder / "checkpoints").iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:-9])
    names, log = sorted(folder.rglob("*")), (folder / "metrics.jsonl").read_bytes()
    ended = cli("export", folder, "--out", tmp_path / "model.safetensors")
    assert ended.code == 0 and str(newest) in ended.err
    assert sorted(folder.rglob("*")) == names and (folder / "metrics.jsonl").read_bytes() == log
    assert cli("resume", folder).code == 0 and len(metrics(folder)) == 4
    assert newest.with_name(f"{newest.name}.left").is_file()


def strictly(path: Path) -> list[dict]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{path} says {word}, which is no JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_what_is_not_finite_is_null_in_the_log_and_nan_where_it_is_read(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        draw_no_page_of_one_run(patch)
        assert run(algorithm="scaffold", out=folder, rounds=2).code == 0
    infos = metrics(folder)
    infos[1] |= {"train_loss": math.nan, "global_loss": math.inf, "consensus": {"head": -math.inf}}
    (folder / "metrics.jsonl").unlink()
    for info in infos:
        Log(folder).append(info)
    assert strictly(folder / "metrics.jsonl")[1]["global_loss"] is None
    last = read_run(folder).metrics[1]
    assert math.isnan(last["train_loss"]) and math.isnan(last["global_loss"]) and math.isnan(last["consensus"]["head"])
    assert math.isnan(read_run(folder).last("global_loss") or 0.0)
    write_report([folder], folder)
    assert "global_loss is not finite in 1 rounds" in (folder / "report.html").read_text()
    assert cli("compare", folder, "--no-references").code == 0


@pytest.mark.slow
def test_a_run_that_diverges_writes_json(tmp_path):
    settings = {"model": "mlp", "clients": 4, "lr": 1e6, "on_bad_client": "skip", "rounds": 4}
    assert run(**settings, out=tmp_path / "run").code == 0
    infos = strictly(tmp_path / "run" / "metrics.jsonl")
    assert any(value is None for info in infos for value in info.values())
    strictly(tmp_path / "run" / "clients.json")
    assert (tmp_path / "run" / "report.html").is_file()


# --- what a run starts from ------------------------------------------------------------------------------------------
@pytest.fixture
def start(tmp_path, no_report) -> Path:
    """A model to start from."""
    assert run(out=tmp_path / "first").code == 0
    return Path(shutil.copy(tmp_path / "first" / "model.safetensors", tmp_path / "start.safetensors"))


def another(path: Path) -> None:
    state = safetensors.torch.load_file(path)
    safetensors.torch.save_file({name: -3 * leaf for name, leaf in state.items()}, path)


def stopped(folder: Path, monkeypatch, **settings: object) -> None:
    """A run that was stopped after its second round."""
    real = Log.append

    def append(log: Log, info: dict) -> None:
        if info["round"] == 3:
            raise KeyboardInterrupt
        real(log, info)

    with monkeypatch.context() as patch:
        patch.setattr(Log, "append", append)
        assert run(out=folder, rounds=4, **settings).code == 130


@pytest.mark.slow
@pytest.mark.parametrize("change", [another, Path.unlink])
def test_a_run_goes_on_from_what_it_started_from(tmp_path, start, monkeypatch, change):
    assert run(out=tmp_path / "whole", rounds=4, init=start).code == 0
    stopped(tmp_path / "run", monkeypatch, init=start)
    change(start)
    assert cli("resume", tmp_path / "run").code == 0
    expected = (tmp_path / "whole" / "model.safetensors").read_bytes()
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == expected
    assert cli("export", tmp_path / "run", "--out", tmp_path / "model.safetensors").code == 0
    assert (tmp_path / "model.safetensors").read_bytes() == expected


@pytest.mark.slow
def test_seeds_and_references_start_from_the_runs_copy(tmp_path, start):
    assert run(out=tmp_path / "runs", seeds="0,1", init=start).code == 0
    expected = (tmp_path / "runs" / "seed-1" / "model.safetensors").read_bytes()
    shutil.rmtree(tmp_path / "runs" / "seed-1")
    start.unlink()
    assert cli("resume", tmp_path / "runs").code == 0
    assert (tmp_path / "runs" / "seed-1" / "model.safetensors").read_bytes() == expected
    assert cli("compare", tmp_path / "runs").code == 0


def test_the_content_of_the_start_is_part_of_the_identity(tmp_path, start):
    copy = Path(shutil.copy(start, tmp_path / "copy.safetensors"))
    one, two = (config(init=str(path)) for path in (start, copy))
    assert experiment_identity.digest(one) == experiment_identity.digest(two)
    another(copy)
    assert experiment_identity.digest(one) != experiment_identity.digest(two)
    settings = {"clients": 6, "rounds": 2, "steps": "2", "model": "softmax_regression", "out": str(tmp_path / "run")}
    federate(init=str(start), **settings)
    federate(init=str(start), resume=True, **settings)
    with pytest.raises(UserError, match="another configuration .*init is"):
        federate(init=str(copy), resume=True, **settings)


def test_a_folder_from_before_the_start_was_kept_still_opens(tmp_path, start, monkeypatch):
    """Its run.toml has the path as it was given, which its checkpoints' identity was made of, and there is no copy."""
    monkeypatch.chdir(tmp_path)
    folder, old = tmp_path / "old", config(init="start.safetensors", data="digits")
    with monkeypatch.context() as patch:
        patch.setattr(folders, "_keep_init", lambda *_: None)
        patch.setattr(experiment_identity, "digest", lambda one, where=None: _of_words(one))
        execute(assemble(old), folder)
    assert experiment_identity.digest(old, folder) == _of_words(old) != experiment_identity.digest(old)
    before = (folder / "model.safetensors").read_bytes()
    assert cli("resume", folder).code == 0 and (folder / "model.safetensors").read_bytes() == before
    assert cli("export", folder, "--out", tmp_path / "model.safetensors").code == 0
    experiment_identity.refuse_another(folder, replace(old, init=str(start)))  # the same file by another name
    federate(out="old", resume=True, init="start.safetensors", clients=6, rounds=3, steps="2", batch=8, split="iid",
             model="softmax_regression")  # fmt: skip


def _of_words(one: Config) -> str:
    """The digest as it was made of the settings' words, the path of the start among them."""
    table = {k: v for k, v in to_table(replace(one, device="cpu")).items() if k not in experiment_identity.NOT_IDENTITY}
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:16]


def test_files_are_known_from_any_folder(tmp_path, start, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(120, 8)).astype(np.float32), np.arange(120) % 3
    np.savez(tmp_path / "own.npz", x_train=x[:90], y_train=y[:90], x_test=x[90:], y_test=y[90:])
    monkeypatch.chdir(tmp_path)
    assert run(out="first-own", data="own.npz").code == 0
    shutil.copy("first-own/split.npz", "split.npz")
    shutil.copy("first-own/model.safetensors", "own.safetensors")
    settings = {"data": "own.npz", "split": 'saved("split.npz")', "init": "own.safetensors", "data_dir": "."}
    assert run(out="run", **settings).code == 0
    table = tomllib.loads(Path("run/run.toml").read_text())["config"]
    assert table["data"] == str(tmp_path / "own.npz") and table["init"] == str(tmp_path / "own.safetensors")
    assert str(tmp_path / "split.npz") in table["split"] and table["data_dir"] == str(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert cli("resume", "../run").code == 0
    assert cli("export", "../run", "--out", "model.safetensors").code == 0
    assert Split.load("../run/split.npz").unseen == Split.load("../split.npz").unseen
    assert run("--config", tmp_path / "run" / "run.toml", out="again", **{"rounds": 1}).code == 0


def test_a_named_data_set_is_no_path(tmp_path, no_report, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    assert run(out="run").code == 0
    assert tomllib.loads(Path("run/run.toml").read_text())["config"]["data"] == "digits"


# --- clients that become non-finite ----------------------------------------------------------------------------------
@pytest.mark.slow
def test_resume_goes_on_without_bad_clients_as_it_is_told(tmp_path, no_report):
    said = sentence(run(**DIVERGES, out=tmp_path / "run"), f"resume {tmp_path / 'run'} --on-bad-client skip`")
    words = said.split("`")[1].split()[1:]
    assert "resume" not in sentence(run(**DIVERGES), "--on-bad-client skip")  # without a folder there is nothing to
    assert cli(*words).code == 0
    infos = metrics(tmp_path / "run")
    assert len(infos) == 30 and infos[-1]["skipped"] > 0


def test_a_run_whose_first_round_was_stopped_has_nothing_to_export(tmp_path, no_report, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module_of_runs, "_round", stopped)
    assert run(out=tmp_path / "run").code == 130
    sentence(cli("export", tmp_path / "run", "--out", tmp_path / "model"), "no checkpoint yet", "apiece resume")


@pytest.mark.slow
def test_skipped_clients_were_sent_the_model(tmp_path):
    """Every client is skipped: down goes what goes down in a good round, up a message without tensors."""
    good = config(rounds=2, lift="sequential", workers=1)
    bad = replace(good, on_bad_client="skip", optimizer="sgd(weight_decay=1e30)", eval_every=9)
    counted = ("numbers_up", "numbers_down", "bytes_up", "bytes_down")
    well, ill = (execute(assemble(one)).metrics[0] for one in (good, bad))
    assert ill["skipped"] == ill["cohort"] == 6
    assert (ill["numbers_down"], ill["bytes_down"]) == (well["numbers_down"], well["bytes_down"])
    assert ill["numbers_up"] == 0 and 0 < ill["bytes_up"] < well["bytes_up"]
    for lift in ("wired", "threaded", "vectorized"):
        other = execute(assemble(replace(bad, lift=lift, workers=2))).metrics
        assert [other[0][key] for key in counted] == [ill[key] for key in counted], lift


# --- settings that take each other's place ---------------------------------------------------------------------------
def started(folder: Path, *words: object) -> dict:
    """What was run of a configuration file and flags over it."""
    assert cli("run", *words, "--out", folder).code == 0
    return tomllib.loads((folder / "run.toml").read_text())["config"]


@pytest.mark.slow
def test_a_flag_clears_the_setting_of_the_file_that_it_stands_instead_of(tmp_path, no_report):
    plain = 'model = "softmax_regression"\nclients = 4\nrounds = 1\n'
    (tmp_path / "epochs.toml").write_text(f"{plain}epochs = 1\n")
    (tmp_path / "steps.toml").write_text(f"{plain}steps = 9\n")
    (tmp_path / "seeds.toml").write_text(f"{plain}steps = 1\nseeds = [0, 1]\n")
    by_steps = started(tmp_path / "a", "--config", tmp_path / "epochs.toml", "--steps", 9)
    assert by_steps["steps"] == "9" and "epochs" not in by_steps
    assert metrics(tmp_path / "a")[0]["steps"] == 4 * 9
    by_epochs = started(tmp_path / "b", "--config", tmp_path / "steps.toml", "--epochs=2")
    assert (by_epochs["epochs"], by_epochs["steps"]) == (2, "50")
    one = started(tmp_path / "c", "--config", tmp_path / "seeds.toml", "--seed=5")
    assert one["seed"] == 5 and "seeds" not in one and (tmp_path / "c" / "metrics.jsonl").is_file()
    kept = started(tmp_path / "d", "--config", tmp_path / "epochs.toml", "--batch", 64)
    assert kept["epochs"] == 1


def test_both_on_one_command_line_are_refused():
    sentence(cli("run", "--steps", 9, "--epochs=1"), "--steps and --epochs are both given", "leave one out")
    sentence(cli("run", "--seeds", "0,1", "--seed", 5), "--seed and --seeds are both given", "leave one out")


# --- reports ---------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_folder_without_a_finished_round_is_left_out_with_a_note(tmp_path, monkeypatch):
    draw_no_page_of_one_run(monkeypatch)
    runs = tmp_path / "runs"
    assert run(out=runs / "one", rounds=1).code == 0
    (runs / "begun").mkdir()
    shutil.copy(runs / "one" / "run.toml", runs / "begun" / "run.toml")
    (runs / "empty").mkdir()
    (runs / "page.html").write_text("an earlier page")
    ended = cli("report", *sorted(runs.iterdir()), "--out", tmp_path / "page.html")
    assert ended.code == 0 and (tmp_path / "page.html").is_file()
    assert ended.err.splitlines() == [
        f"apiece: {runs / name} has no finished round, and is left out." for name in ("begun", "empty")
    ]
    ended = cli("compare", *sorted(runs.iterdir()), "--no-references", "--out", tmp_path / "page.html")
    assert ended.code == 0 and len(ended.err.splitlines()) == 2
    sentence(cli("report", runs / "begun", runs / "page.html"), "no finished round")
    sentence(cli("report", runs / "none", runs / "one"), "not a folder")


# commands catch one that reads it unchecked, targets a check that NaN passes
@pytest.mark.parametrize("command", ["compare", "report"])
@pytest.mark.parametrize(("target", "said"), [("80", "(0, 1]"), ("nan", "finite"), ("0", "(0, 1]")])
def test_a_target_is_checked_wherever_it_is_given(tmp_path, no_report, command, target, said):
    assert run(out=tmp_path / "run", rounds=1).code == 0
    there = sorted(tmp_path.iterdir())
    sentence(cli(command, tmp_path / "run", "--target", target), "target=", said)
    assert sorted(tmp_path.iterdir()) == there


# --- schedules -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("text", ["exponential(-1)", "exponential(0)", "exponential(inf)", "exponential(1.5)",
                                  "cosine(-0.5)", "cosine(2)", "drop(every=2, factor=-1)", "drop(every=0)",
                                  "drop(every=2, factor=0)"])  # fmt: skip
def test_values_that_make_no_schedule_are_refused(text):
    sentence(run(schedule=text), text.partition("(")[0], "give ")


def test_schedules_lie_between_zero_and_one():
    made = [Exponential(1.0), Exponential(0.5), Cosine(0.0), Cosine(1.0), Steps(1, 1.0), Steps(3, 0.1)]
    assert all(0 <= schedule(t, 30) <= 1 for schedule in made for t in range(30))


def test_a_run_begins_in_a_folder_where_only_a_start_was_kept(tmp_path, start):
    """A crash came between the copy and the run.toml; what is another's is not written over."""
    (tmp_path / "run").mkdir()
    shutil.copy(start, tmp_path / "run" / "init.safetensors")
    run_config(config(init=str(start), out=str(tmp_path / "run")))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "init.safetensors").write_bytes(b"mine")
    sentence(run(init=start, out=tmp_path / "other"), "init.safetensors", "take another --out")
    assert (tmp_path / "other" / "init.safetensors").read_bytes() == b"mine"


def test_a_folder_with_words_as_they_were_once_spelled_goes_on(tmp_path, no_report):
    """Its identity is the same, and what it resumes is what it began."""
    one, two = tmp_path / "one", tmp_path / "two"
    settings = {"optimizer": "adamw", "optimizer_state": "kept"}
    settings |= {"algorithm": "fedprox(center=server) + fedavgm(form=normalized)", "lift": "vectorized"}
    assert run(out=one, rounds=1, **settings).code == 0
    shutil.copytree(one, two)
    toml = two / "run.toml"
    for now, once in folders.SPELLED.items():
        toml.write_text(toml.read_text().replace(now, once))
    for folder in (one, two):
        assert cli("resume", folder, "--rounds", 2).code == 0
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()
    assert all(toml.read_text().count(now) == 1 for now in ("vectorized", "center", "normalized"))
