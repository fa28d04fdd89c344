"""Runs that go wrong: clients that diverge, a disk that is full, checkpoints that are torn or another run's."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.outer import DIVERGES, Ended, cli, content, metrics, run, sentence

from apiece.config.assemble import assemble
from apiece.engine import row
from apiece.experiment import folders, identity, launch, lifecycle
from apiece.experiment import run as module_of_runs
from apiece.storage.disk import DiskRows
from apiece.storage.row_format import RowFormat, StoreError

pytestmark = pytest.mark.usefixtures("no_report")


# --- clients that diverge --------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 7])
def test_a_beta_that_diverges_stops_the_run_and_all_is_saved(tmp_path, every):
    folder = tmp_path / "run"
    ended = run(**DIVERGES, out=folder, checkpoint_every=every)
    said = sentence(ended, "client 'client-", "RelaxedInit(beta=50.0", "0.5", "--clip 10", "--on-bad-client skip")
    done = int(said.split("in round ")[1].split(":")[0]) - 1
    assert done >= 2 and [info["round"] for info in metrics(folder)] == list(range(1, done + 1))
    assert (folder / "checkpoints" / f"round-{done:06d}.safetensors").is_file()
    before = content(folder)
    assert sentence(cli("resume", folder)) == said  # it goes on from there, and comes to the same
    assert content(folder) == before
    assert cli("export", folder, "--out", tmp_path / "model.safetensors").code == 0


@pytest.mark.slow
def test_a_step_size_that_diverges():
    sentence(
        run(lr=1e30, rounds=10, model="mlp", optimizer="sgd(weight_decay=0.1)"),
        "client 'client-",
        "the step size 1e+30",
        "too large",
    )


@pytest.mark.parametrize("answer", ["stop", "skip"])
def test_a_server_that_becomes_non_finite_stops_the_run(tmp_path, answer):
    """Every answer is finite, and the server's own step is not; of a first round, nothing is left."""
    settings = {"lr": 1000, "server": "average(lr=3e38)", "out": tmp_path / "run", "on_bad_client": answer}
    sentence(run(**settings), "the server became non-finite in round 1", "Descent(lr=3e+38)")
    assert not (tmp_path / "run").exists()


MISTAKEN = """
from dataclasses import dataclass
from apiece import Piece, algorithm

@dataclass(frozen=True)
class Mistaken(Piece):
    slot: str = ""

    def evaluate(self, memory, theta):
        return theta[:3] if self.slot == "evaluate" else theta

    def personal(self, view, theta):
        return thetta if self.slot == "personal" else theta

    def predict(self, view):
        return 5 if self.slot == "predict" else None

    def observe(self, view):
        return {"pictures": view.endd} if self.slot == "observe" else {}

def mistaken(slot=""):
    return algorithm(Mistaken(slot), name="mistaken")
"""


@pytest.mark.parametrize("slot", ["evaluate", "personal", "predict", "observe"])
def test_a_mistake_in_what_measures_is_said_in_the_first_round_and_leaves_nothing(slot, tmp_path, monkeypatch):
    (tmp_path / "mistaken.py").write_text(MISTAKEN)
    monkeypatch.chdir(tmp_path)
    settings = {"plugin": "mistaken.py", "rounds": 2, "eval_every": 2, "out": tmp_path / "run"}
    sentence(run(**settings, algorithm=f"mistaken({slot})"), f"Mistaken.{slot} ")
    assert not (tmp_path / "run").exists()
    settings["algorithm"] = "mistaken"
    assert run(**settings).code == 0
    assert ["global_accuracy" in info for info in metrics(tmp_path / "run")] == [False, True]  # the try is no record


def test_a_first_round_that_becomes_non_finite_leaves_nothing_and_may_be_mended(tmp_path):
    settings = {"optimizer": "sgd(weight_decay=0.1)", "model": "mlp", "out": tmp_path / "run"}
    said = sentence(run(**settings, lr=1e30), "in round 1:", "leave such clients out with --on-bad-client skip.")
    assert "resume" not in said and not (tmp_path / "run").exists()
    assert run(**settings, lr=0.1).code == 0


def test_what_continues_a_run_with_a_plugin_names_it(tmp_path):
    plugin = tmp_path / "own.py"
    plugin.write_text(FAILS.format("size").replace("personal(self, view, theta)", "start(self, view, theta)").replace(
        "theta + view.data.size", "theta / (view.round < 2)"))
    ended = run(algorithm="fails", plugin=plugin, out=tmp_path / "run", rounds=4)
    again = f"apiece resume {tmp_path / 'run'} --plugin {plugin} --on-bad-client skip"
    said = sentence(ended, "in round 3:", f"The rounds before are saved: `{again}` continues without such clients.")
    assert cli(*again.split()[1:]).code == 0, said


@pytest.mark.slow
def test_bad_clients_are_skipped_and_counted(tmp_path):
    ended = run(**DIVERGES, out=tmp_path / "run", on_bad_client="skip")
    assert ended.code == 0
    infos = metrics(tmp_path / "run")
    assert len(infos) == 30 and infos[0]["skipped"] == 0 and infos[-1]["skipped"] > 0
    assert all(info["answered"] + info["skipped"] == info["cohort"] for info in infos)
    last = [info for info in infos if not info["answered"]][-2:]
    assert last and last[0]["global_loss"] == last[1]["global_loss"]  # nobody answered: nothing changed


# --- a disk that is full ---------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_disk_that_is_full_at_every_write(tmp_path, monkeypatch):
    """One sentence, and once there is room again the run ends as the one that never stopped."""
    settings = {"algorithm": "scaffold", "rounds": 2, "clients": 3}
    assert run(**settings, out=tmp_path / "whole").code == 0
    expected = (tmp_path / "whole" / "model.safetensors").read_bytes()
    real, writes, stop = os.pwrite, 0, 0

    def pwrite(descriptor, data, offset):
        nonlocal writes
        writes += 1
        if writes == stop:
            real(descriptor, data[: len(data) // 2], offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    assert run(**settings, out=tmp_path / "counted").code == 0
    for stop in range(1, writes + 1):
        folder, writes = tmp_path / f"run-{stop}", 0
        sentence(run(**settings, out=folder), "the disk is full", "bytes were needed", "make room and resume")
        again = cli("resume", folder) if (folder / "run.toml").is_file() else run(**settings, out=folder)
        assert again.code == 0, again
        assert (folder / "model.safetensors").read_bytes() == expected, stop
    assert stop > 15


def test_a_disk_that_is_really_full(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    made = shutil.which("mount") and os.geteuid() == 0
    if (
        not made
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "none", disk], capture_output=True).returncode
    ):
        pytest.skip("a small file system cannot be mounted here")
    try:
        settings = {"algorithm": "scaffold", "model": "mlp(hidden=[40])", "rounds": 3}
        sentence(run(**settings, out=disk / "run"), "the disk is full", "are free")
        assert subprocess.run(["mount", "-o", "remount,size=20m", disk], capture_output=True).returncode == 0
        assert cli("resume", disk / "run").code == 0
        assert run(**settings, out=tmp_path / "whole").code == 0
        assert (disk / "run" / "model.safetensors").read_bytes() == (
            tmp_path / "whole" / "model.safetensors"
        ).read_bytes()
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_folder_that_exists_is_refused_before_anything_is_said(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    ended = run(out=tmp_path / "run")
    sentence(ended, "run' exists: take another --out, for what lies there is no run")
    assert not ended.out and [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("place", "told"),
    [("seed-0", "such as seed-0."),
     ("fedavg/seed-0", "such as fedavg/seed-0; the command that made a grid or a search continues it."),
     ("fedavg/trial-001/seed-0", "/seed-0; the command that made a grid or a search continues it.")],
)  # fmt: skip
def test_a_folder_of_runs_is_no_run_and_says_how_it_goes_on(tmp_path, place, told):
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "run.toml").touch()
    sentence(cli("resume", tmp_path), "no run folder", "or one of those in it, such as", told)


FAILS = """
from apiece import Piece, algorithm

class Fails(Piece):
    @classmethod
    def neutral(cls):
        return "it always fails"

    def personal(self, view, theta):
        return theta + view.data.{}

def fails():
    return algorithm(Fails(), name="fails")
"""


@pytest.mark.parametrize("seeds", [(), ("--seeds", "0,1")], ids=["one", "two"])
def test_a_run_that_fails_before_its_first_round_leaves_nothing_and_may_be_mended(tmp_path, seeds):
    folder, plugin = tmp_path / "runs" / "one", tmp_path / "own.py"
    same = lambda: run(*seeds, algorithm="fails", plugin=plugin, out=folder)
    plugin.write_text(FAILS.format("x"))
    sentence(same(), "Fails.personal", "line 10", "no attribute 'x'; a client's samples have size, all()")
    assert not folder.exists()
    plugin.write_text(FAILS.format("size"))
    assert same().code == 0 and len(list(folder.glob("**/model.safetensors"))) == max(1, len(seeds))


@pytest.mark.parametrize(
    ("seeds", "of", "begin", "first"),
    [((), lifecycle, "begin", "."), (("--seeds", "0,1"), lifecycle, "begin", "."),
     (("--seeds", "0,1"), folders, "write_config", "seed-0")],
    ids=["one run", "the first of two", "before the first of two"],
)  # fmt: skip
def test_of_two_starts_at_once_the_one_that_loses_removes_nothing(tmp_path, monkeypatch, seeds, of, begin, first):
    """Both found no run there; the other was faster, holds the folder, and has done no round yet."""
    other, real, theirs = ExitStack(), getattr(of, begin), list[Path]()

    def overtaken(folder, *rest):
        real(folder, *rest)
        (folder / first).mkdir(exist_ok=True)
        (folder / first / "run.toml").touch()
        other.enter_context(folders.alone(folder))
        theirs.append(folder / first / "run.toml")

    monkeypatch.setattr(of, begin, overtaken)
    with other:
        sentence(run(*seeds, out=tmp_path / "run"), "another process is at work")
    assert theirs and all(path.is_file() for path in theirs)


@pytest.mark.slow
def test_a_seed_that_fails_leaves_what_the_one_before_it_made(tmp_path, monkeypatch):
    folder, real = tmp_path / "run", launch.watched
    monkeypatch.setattr(launch, "watched", lambda e, *rest, **how: 1 / 0 if e.config.seed else real(e, *rest, **how))
    with pytest.raises(ZeroDivisionError):
        run("--seeds", "0,1", out=folder)
    assert (folder / "run.toml").is_file() and (folder / "seed-0" / "model.safetensors").is_file()
    monkeypatch.undo()
    assert cli("resume", folder).code == 0 and (folder / "seed-1" / "model.safetensors").is_file()


def test_a_first_round_that_a_signal_stops_leaves_the_run(tmp_path, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module_of_runs, "_round", stopped)
        assert run(out=tmp_path / "run").code == 130
    assert cli("resume", tmp_path / "run").code == 0 and len(metrics(tmp_path / "run")) == 3


def test_a_folder_that_may_not_be_written(tmp_path):
    sentence(run(out="/proc/apiece/run"), "/proc/apiece")


# --- checkpoints that are not to be trusted --------------------------------------------------------------------------
@pytest.fixture
def folder(tmp_path) -> Path:
    assert run(algorithm="scaffold", rounds=4, out=tmp_path / "run").code == 0
    return tmp_path / "run"


def newest(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoints").glob("*.safetensors"))[::-1]


def spoil(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "torn":
        data = data[: len(data) // 2]
    elif how == "empty":
        data = bytearray()
    else:
        data[-3] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["torn", "empty", "flipped"])
def test_a_spoilt_checkpoint_is_refused_by_name_and_the_one_before_serves(folder, how):
    expected, path = (folder / "model.safetensors").read_bytes(), newest(folder)[0]
    spoil(path, how)
    ended = cli("resume", folder)
    assert ended.code == 0 and str(path) in ended.err and "checkpoint of round 3 is taken" in ended.err
    assert (folder / "model.safetensors").read_bytes() == expected
    assert str(path) in (folder / "notes.txt").read_text()


def test_when_all_are_spoilt(folder):
    for path in newest(folder):
        spoil(path, "torn")
    before = metrics(folder)
    ended = cli("resume", folder)
    assert ended.code == 2 and "no checkpoint of" in ended.err.splitlines()[-1] and metrics(folder) == before


@pytest.mark.parametrize(
    "settings", [{}, {"drift": "none"}, {"checkpoint_every": 9}, {"seeds": "0,1"}], ids=["", "rowless", "few", "seeds"]
)
def test_when_all_are_lost(settings, tmp_path):
    """Nothing is changed; the run would begin anew, and its log be gone."""
    folder = tmp_path / "run"
    assert run(out=folder, rounds=4, **settings).code == 0
    for path in (*folder.rglob("round-*.safetensors"), *folder.rglob("report.html")):
        path.unlink()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for more in ((), ("--rounds", 6)):
        sentence(cli("resume", folder, *more), "the checkpoints of", "are lost, though rounds were done")
    for path in folder.rglob("model.safetensors"):  # it ended, or did not
        before.pop(path)
        path.unlink()
    sentence(cli("resume", folder, "--rounds", 6), "the checkpoints of", "are lost, though rounds were done")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_stopped_run_whose_checkpoints_are_lost_stays_as_it_is(tmp_path):
    folder = tmp_path / "run"
    assert run(out=folder, rounds=9, checkpoint_every=9, lr=0.0, early_stopping=1).code == 0
    for path in folder.rglob("round-*.safetensors"):
        path.unlink()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    sentence(cli("resume", folder, "--rounds", 12), "the checkpoints of", "are lost, though rounds were done")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_another_runs_checkpoint_is_refused_by_name(folder, tmp_path):
    other = tmp_path / "other"
    assert run(algorithm="scaffold", rounds=4, lr=0.01, out=other).code == 0
    expected = (folder / "model.safetensors").read_bytes()
    shutil.copy(newest(other)[0], newest(folder)[0])
    ended = cli("resume", folder)
    assert ended.code == 0 and "belongs to run" in ended.err and str(newest(folder)[0]) in ended.err
    assert (folder / "model.safetensors").read_bytes() == expected
    for path in newest(folder):
        shutil.copy(newest(other)[0], path)
    assert "belongs to run" in sentence(Ended(2, "", cli("resume", folder).err.splitlines()[-1] + "\n"))


def test_changed_settings_are_another_run(folder):
    text = (folder / "run.toml").read_text()
    (folder / "run.toml").write_text(text.replace("batch = 8", "batch = 4"))
    ended = cli("resume", folder)
    assert ended.code == 2 and "has other settings than its run began with" in ended.err


def test_rows_that_are_lost_or_another_runs(folder, tmp_path):
    other = tmp_path / "other"
    assert run(algorithm="scaffold", rounds=4, lr=0.01, out=other).code == 0
    kept = (folder / "clients.rows").read_bytes()
    shutil.copy(other / "clients.rows", folder / "clients.rows")
    sentence(cli("resume", folder), "clients.rows", "belongs to run")
    (folder / "clients.rows").write_bytes(kept[:100])
    sentence(cli("resume", folder), "clients.rows")
    (folder / "clients.rows").write_bytes(kept[:4200])
    sentence(cli("resume", folder), "clients.rows", "no checkpoint of", "lost, damaged or replaced")


# --- clients' rows that rot ------------------------------------------------------------------------------------------
def rot(folder: Path, last: bool) -> str:
    """Flip a bit in a client's newest row, one of the last round's or an earlier one; the client's name."""
    experiment = assemble(folders.recorded(folder))
    form = RowFormat.of(row.write(row.fresh(experiment.federated.setup)))
    store = DiskRows(folder, form, identity.digest(experiment.config, folder))
    newest = {header.client: (header, store._row_at(slot)) for slot, header in store._scan().items()}
    store.close()
    client, at = next((c, at) for c, (header, at) in newest.items() if (header.round == 3) == last)
    data = bytearray((folder / "clients.rows").read_bytes())
    data[at + 5] ^= 1
    (folder / "clients.rows").write_bytes(data)
    return experiment.federation.names[client]


@pytest.fixture
def half(tmp_path) -> Path:
    """A run of few clients a round, stopped before its end: some rows are of an earlier round, some of the last."""
    assert run(algorithm="scaffold", rounds=4, cohort=0.5, out=tmp_path / "half").code == 0
    (tmp_path / "half" / "model.safetensors").rename(tmp_path / "expected")
    return tmp_path / "half"


def test_a_rotten_row_falls_back_as_a_torn_checkpoint_does(half, tmp_path):
    """A row of the last round: the checkpoint before does not need it."""
    name = rot(half, last=True)
    rows = half / "clients.rows"
    ended = cli("resume", half)
    said = f"{rows}: the row of client '{name}', written in round 4, is damaged (its checksum differs)."
    assert ended.code == 0 and f"{said} The checkpoint of round 3 is taken instead." in ended.err
    assert said in (half / "notes.txt").read_text()
    assert (half / "model.safetensors").read_bytes() == (tmp_path / "expected").read_bytes()
    assert [info["round"] for info in metrics(half)] == [1, 2, 3, 4]


def test_a_rotten_row_that_all_checkpoints_need_is_named(half):
    name = rot(half, last=False)
    before = content(half)
    said = sentence(cli("resume", half), "no checkpoint of", f"the row of client '{name}', written in round ", "a copy")
    assert said.count("is damaged") == 1 and content(half) == before


@pytest.mark.slow
def test_a_row_that_rots_while_a_run_works_is_named(half, monkeypatch):
    """It is met when its client trains next; the next start goes on from the checkpoint before."""
    whole, spoilt = DiskRows._whole, []

    def rotten(store, client, written):
        if written.round == 3 and not spoilt:
            spoilt.append(client)
            raise StoreError(f"{store}: the row of client {client} is damaged.")
        return whole(store, client, written)

    with monkeypatch.context() as patch:
        patch.setattr(DiskRows, "_whole", rotten)
        patch.setattr(DiskRows, "check", lambda *_: None)
        ended = cli("resume", half, "--rounds", 9)
    assert ended.code == 2 and "is damaged: `apiece resume` continues from the last checkpoint" in ended.err
    assert cli("resume", half).code == 0 and len(metrics(half)) == 9
