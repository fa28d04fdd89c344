"""A run gets more rounds, finished or not, and is bitwise the run that had them from the start."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from support.crashes import Crash, Disk
from support.outer import TINY, cli, metrics, run, sentence
from support.recipes import SMALL, Stop, result, stopping

from apiece.errors import UserError
from apiece.experiment import folders, launch, saved
from apiece.experiment.launch import federate
from apiece.experiment.result import State
from apiece.report import page
from apiece.storage import checkpoint

ENDS = {  # settings under which the last round is measured otherwise than one among others
    "scaffold": {"algorithm": "scaffold"},
    "an evaluation out of turn": {"eval_every": 3, "algorithm": "fedals(alpha=3) + scaffold", "drift": "selected"},
    "few checkpoints": {"checkpoint_every": 9, "algorithm": "fedavg_p", "absent": 0.3},
    "panels in turns": {"panel_of": "turns", "panel": 2, "eval_every": 2, "algorithm": "scaffold_p"},
    "its own steps": {"schedule": "drop(every=3, factor=0.5)", "server": "adam(lr=0.01)"},
    "groups in turn": {"algorithm": "streaming_diloco(every=4, alpha=0.3)", "optimizer": "adamw", "lr": 0.01},
    "personal models": {"algorithm": "ditto + fine_tune(steps=1)"},
    "wired": {"algorithm": "scaffold", "lift": "wired", "rounds": 2, "workers": 1},
}


pytestmark = pytest.mark.usefixtures("no_report")


def begun(folder: Path, rounds: int, stop: int = 0, **settings) -> None:
    """Begin a run, or go on with it, to so many rounds; it is stopped after one of them."""
    with suppress(Stop):
        federate(out=str(folder), resume=True, on_round=stopping(stop), **(SMALL | settings | {"rounds": rounds}))


@pytest.mark.slow
@pytest.mark.parametrize("ends", ENDS)
def test_a_run_that_ended_goes_on(ends, tmp_path):
    settings = dict(ENDS[ends])
    first = settings.pop("rounds", 5)
    begun(tmp_path / "whole", first + 3, **settings)
    begun(tmp_path / "run", first, **settings)
    begun(tmp_path / "run", first + 3, **settings)
    one, other = result(tmp_path / "run"), result(tmp_path / "whole")
    if ends == "wired":  # a client's memory says which checkpoints there were, and these runs had others
        del one["rows"], other["rows"]
    assert one == other


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_longer_or_ends_sooner(tmp_path):
    settings = {"algorithm": "scaffold", "eval_every": 2}
    for rounds, stop in ((8, 3), (4, 3), (3, 3), (4, 4)):
        folder, whole = tmp_path / f"run-{rounds}-{stop}", tmp_path / f"whole-{rounds}"
        begun(whole, rounds, **settings)
        begun(folder, 5, stop, **settings)
        begun(folder, rounds, **settings)
        assert result(folder) == result(whole), (rounds, stop)
        assert folders.recorded(folder).rounds == rounds


@pytest.mark.slow
def test_again_and_again_by_the_command(tmp_path):
    """Each time with the words of the command line, and each time to the end."""
    for rounds in (2, 5):
        assert run(out=tmp_path / f"whole-{rounds}", algorithm="scaffold", rounds=rounds).code == 0
    assert run(out=tmp_path / "run", algorithm="scaffold", rounds=1).code == 0
    for rounds in (2, 5):
        ended = cli("resume", tmp_path / "run", "--rounds", rounds)
        assert ended.code == 0 and f"and has {rounds} rounds now" in ended.err
        assert result(tmp_path / "run") == result(tmp_path / f"whole-{rounds}")
    assert cli("resume", tmp_path / "run").code == 0 and len(metrics(tmp_path / "run")) == 5


@pytest.mark.slow
def test_all_seeds_get_more_rounds(tmp_path):
    """One had ended, one was stopped, one had not begun."""
    assert run(out=tmp_path / "whole", rounds=4, seeds="0,1,2").code == 0
    assert run(out=tmp_path / "runs", rounds=2, seeds="0,1,2").code == 0
    shutil.rmtree(tmp_path / "runs" / "seed-2")
    (tmp_path / "runs" / "seed-1" / "model.safetensors").unlink()
    assert cli("resume", tmp_path / "runs", "--rounds", 4).code == 0
    for seed in range(3):
        assert result(tmp_path / "runs" / f"seed-{seed}") == result(tmp_path / "whole" / f"seed-{seed}")
    assert folders.recorded(tmp_path / "runs").rounds == 4


@pytest.mark.slow
def test_a_grid_gets_more_rounds(tmp_path):
    words = ["--rows", "fedavg, scaffold", "--columns", "nothing"]
    words += [word for key, value in (TINY | {"rounds": 2}).items() for word in (f"--{key}", value)]
    assert cli("grid", *words, "--out", tmp_path / "grid").code == 0
    assert cli("grid", *words, "--rounds", 3, "--out", tmp_path / "grid").code == 0
    assert run(algorithm="scaffold", rounds=3, out=tmp_path / "whole").code == 0
    assert result(tmp_path / "grid" / "scaffold" / "seed-0") == result(tmp_path / "whole")
    sentence(cli("grid", *words, "--rounds", 1, "--out", tmp_path / "grid"), "has done 3 rounds", "rounds=1 are fewer")


def test_what_is_refused_changes_nothing(tmp_path):
    assert run(out=tmp_path / "run", rounds=3, schedule="cosine").code == 0
    assert run(out=tmp_path / "runs", rounds=2, seeds="0,1").code == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    said = "schedule='cosine' depends on the number of rounds", "would have had other step sizes"
    sentence(cli("resume", tmp_path / "run", "--rounds", 6), *said)
    with pytest.raises(UserError, match="depends on the number of rounds"):
        federate(out=str(tmp_path / "run"), resume=True, **(TINY | {"rounds": 6, "schedule": "cosine"}))
    for folder in ("run", "runs"):
        sentence(cli("resume", tmp_path / folder, "--rounds", 1), "rounds, and rounds=1 are fewer: ask for ")
        sentence(cli("resume", tmp_path / folder, "--rounds", -1), "rounds=-1 must be 1 or more")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def from_before(folder: Path, patch: pytest.MonkeyPatch, **settings) -> None:
    """A run whose checkpoints know nothing of its log, and which wrote none before the last round for its own sake."""
    save, write = saved.save, checkpoint.write

    def due(where: Path, digest: str, state: State, *rest) -> None:
        if state.server.round % settings["checkpoint_every"] == 0 or state.server.round == settings["rounds"]:
            save(where, digest, state, *rest)

    with patch.context() as old:
        old.setattr(saved, "save", due)
        old.setattr(checkpoint, "write", lambda *a: write(*a[:3], {"rows": a[3]["rows"]}, a[4]))
        assert run(out=folder, **settings).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 2, 9])
def test_a_folder_from_before_goes_on(tmp_path, monkeypatch, every):
    """From its checkpoint before the last, or where there is none from its beginning."""
    settings = {"algorithm": "scaffold", "checkpoint_every": every}
    assert run(out=tmp_path / "whole", rounds=6, **settings).code == 0
    from_before(tmp_path / "old", monkeypatch, rounds=4, **settings)
    assert cli("resume", tmp_path / "old", "--rounds", 6).code == 0
    assert result(tmp_path / "old") == result(tmp_path / "whole")


def test_a_torn_checkpoint_before_the_last_is_refused_and_the_end_stays(tmp_path):
    """A run goes on from before its last round; where it cannot, it stays as it ended."""
    assert run(out=tmp_path / "run", algorithm="scaffold", rounds=3).code == 0
    torn = tmp_path / "run" / "checkpoints" / "round-000002.safetensors"
    torn.write_bytes(torn.read_bytes()[:-9])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    sentence(cli("resume", tmp_path / "run", "--rounds", 6), f"{torn}: is no whole checkpoint")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


CRASHED = {"model": "mlp(hidden=[2])", "clients": 3, "cohort": 1.0, "steps": 1, "unseen": 0, "eval_every": 2,
           "drift": "selected", "lift": "sequential", "algorithm": "scaffold"}  # fmt: skip


# ways to crash catch a flush or a rename that is left out
@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "power cut", "power cut, some was written"])
def test_a_crash_at_every_operation_while_a_run_gets_more_rounds(how, tmp_path, monkeypatch):
    """Whatever is asked for next, the old number of rounds or the new one, comes to its own end."""
    disk = Disk(tmp_path / "disk", monkeypatch)
    folder, expected = disk.root / "run", {}
    for rounds in (2, 3):
        disk.reset()
        begun(folder, rounds, **CRASHED)
        expected[rounds] = result(folder)
    at = 0
    while True:
        at += 1 if at < 16 else 7  # run.toml changes among the first
        disk.reset()
        begun(folder, 2, **CRASHED)
        disk.arm(at, half=at % 2 == 0)
        try:
            begun(folder, 3, **CRASHED)
            break
        except Crash:
            pass
        if "cut" in how:
            disk.cut(np.random.default_rng(at), 0.5 if "some" in how else 0.0)
        disk.arm(0)
        rounds = folders.recorded(folder).rounds  # as a plain resume would
        begun(folder, rounds, **CRASHED)
        assert result(folder) == expected[rounds], at
        begun(folder, 3, **CRASHED)
        assert result(folder) == expected[3], at
    assert at > 30


# --- a run that has ended --------------------------------------------------------------------------------------------
def test_resume_of_a_run_that_has_ended_says_so_at_once(tmp_path, monkeypatch):
    """Nothing is loaded or measured, nothing changes; what is lost of the end is made again."""
    monkeypatch.setattr(page, "write_report", lambda _, out, *rest: (Path(out) / "report.html").touch())
    folders_of = {"run": {}, "runs": {"seeds": "0,1"}}
    for name, settings in folders_of.items():
        assert run(out=tmp_path / name, rounds=2, **settings).code == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with monkeypatch.context() as patch:
        patch.setattr(launch, "assemble", lambda *_: pytest.fail("assembled"))
        for name in folders_of:
            folder = tmp_path / name
            said = f"{folder} has ended after 2 rounds: see {folder / 'report.html'}; --rounds N continues the run.\n"
            assert cli("resume", folder) == cli("resume", folder, "--rounds", 2) == (0, said, "")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    samples = (np.eye(40, 4), np.arange(40) % 2)
    federate(data=samples, model="mlp", clients=2, rounds=1, steps=1, out=str(tmp_path / "own"))
    assert "; its program or `apiece deploy resume` continues the run." in cli("resume", tmp_path / "own").out
    for lost in ("model.safetensors", "report.html"):
        (tmp_path / "run" / lost).unlink()
        ended = cli("resume", tmp_path / "run")
        assert ended.code == 0 and "has ended" not in ended.out and (tmp_path / "run" / lost).is_file()
    text = (tmp_path / "run" / "run.toml").read_text()
    (tmp_path / "run" / "run.toml").write_text(text.replace("batch = 8", "batch = 4"))
    sentence(cli("resume", tmp_path / "run"), "other settings than its run began with")  # not the run that ended
    text = (tmp_path / "runs" / "run.toml").read_text()
    (tmp_path / "runs" / "run.toml").write_text(text.replace("batch = 8", "batch = 4"))
    told = f"(batch is 8 in {tmp_path / 'runs' / 'seed-0' / 'run.toml'} and 4 here): put the old ones back, or begin"
    sentence(cli("resume", tmp_path / "runs", "--rounds", 3), told)
