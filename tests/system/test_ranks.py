"""Several ranks under torchrun: the run of one process, resumed on another number of ranks, and told of a lost one."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from support.helpers import gap
from support.outer import cells, cli
from support.ranks import SETTINGS, model

from apiece.experiment import grid
from apiece.experiment.launch import resume
from apiece.storage.disk import DiskRows
from apiece.storage.row_format import RowFormat
from apiece.storage.shared import SharedRows
from apiece.system.ranks import Ranks

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_report")]


THREADS = os.environ | {"OMP_NUM_THREADS": "1"}


def torchrun(ranks: int, *words: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *words]


def ended(ranks: int, folder: Path, program: str, *words: str) -> subprocess.CompletedProcess:
    """A Python program in this folder, under torchrun: what the ranks said, one after the other.

    Each rank writes to files of its own. Two that write to one pipe at the same time break each other's lines.
    """
    (folder / "program.py").write_text(program)
    command = torchrun(ranks, "--redirects", "3", "--log-dir", str(folder / "said"), "program.py", *words)
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=THREADS, cwd=folder)
    for name in ("stdout", "stderr"):
        logs = sorted((folder / "said").rglob(f"{name}.log"))
        setattr(done, name, "".join(log.read_text() for log in logs) + getattr(done, name))
    return done


COMMANDS = """
import atexit, os, shlex, sys

def threads():
    names = [open(f"/proc/self/task/{thread}/comm").read() for thread in os.listdir("/proc/self/task")]
    print("left:", sum("gloo" in name for name in names), flush=True)

atexit.register(threads)  # what is registered first is done last
from apiece.cli import main
from apiece.report import page
page.write_report = lambda runs, out, *_: out
for words in sys.argv[1:]:
    main(shlex.split(words))
"""


def logged(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "ranks, runs",
    [
        (
            2,
            {
                "scaffold + relaxed_init(beta=0.1)": "0.7",
                "pefll(embedding=linear, size=S)": "0.5",
                "fedavg": "0.1",  # one client a round: the other rank has none
            },
        ),
        (3, {"fedals(alpha=2) + fedcm": "1"}),
    ],
)
def test_ranks_make_the_run_of_one_process(tmp_path, ranks, runs):
    said = {
        name: f"run --algorithm {name!r} --cohort {cohort} --rounds 4 {SETTINGS} --out '{{}}/{name}'"
        for name, cohort in runs.items()
    }
    done = ended(ranks, tmp_path, COMMANDS, *(words.format("many") for words in said.values()))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("left: 0") == ranks, "a process whose threads are left may be aborted at its end"
    for name, words in said.items():
        assert cli(*shlex.split(words.format(tmp_path / "one"))).code == 0
        one, many = model(tmp_path / "one" / name), model(tmp_path / "many" / name)
        assert one.keys() == many.keys() and max(gap(one[k], many[k]) for k in one) < 1e-10
        alone, shared = logged(tmp_path / "one" / name), logged(tmp_path / "many" / name)
        for key in ("global_accuracy", "personal_accuracy_mean", "adapted_accuracy"):
            assert shared[-1].get(key) == pytest.approx(alone[-1].get(key)) and (key in alone[-1] or "pefll" in name)


STOPPING = """
import sys
from apiece import federate, keep_best
from apiece.system.ranks import join

leads = join().leads  # only the first rank sees a round, so the others cannot say "stop"
told = lambda info: "stop" if leads and info["round"] == 3 else None
settings = dict(model="mlp(hidden=[4])", clients=6, cohort=2, steps=2, batch=8, lift="sequential", precision="float64")
result = federate(rounds=6, on_round=told, watchers=[keep_best()], out=sys.argv[1], **settings)
print("rounds:", result.server.round, flush=True)
"""


def test_the_first_rank_ends_the_run_for_all(tmp_path):
    done = ended(2, tmp_path, STOPPING, "run")
    assert done.returncode == 0 and done.stdout.count("rounds: 3") == 2, done.stderr
    rounds = [line["round"] for line in logged(tmp_path / "run")]
    assert rounds == [1, 2, 3, 3]  # the second line of the last round has what is measured at the end
    assert (tmp_path / "run" / "best.safetensors").is_file()
    assert 'stopped = "3"' in (tmp_path / "run" / "run.toml").read_text()


def test_goes_on_with_another_number_of_ranks(tmp_path):
    """Begun by two, stopped by a lost one, ended by one process: the run that was never stopped."""
    words = ["run", "--algorithm", "scaffold", "--cohort", "4", "--rounds", "40", *SETTINGS.split()]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert cli(*words, "--out", whole).code == 0
    command = torchrun(2, "-m", "apiece", *words, "--out", str(broken))
    begun = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=THREADS, start_new_session=True)
    try:
        until = time.monotonic() + 300
        while not list(broken.glob("checkpoints/*")) and time.monotonic() < until:
            time.sleep(0.02)
        os.kill(last_rank(begun.pid), signal.SIGKILL)
        said = begun.communicate(timeout=300)[1]
    finally:
        if begun.poll() is None:
            os.killpg(begun.pid, signal.SIGKILL)
    assert begun.returncode != 0 and not (broken / "model.safetensors").exists()
    assert "another rank of this run ended" in said and 'Traceback (most recent call last):\n  File "/' not in said
    resume(broken)
    one, other = model(whole), model(broken)
    assert max(gap(one[k], other[k]) for k in one) < 1e-10


def last_rank(agent: int) -> int:
    """The process that torchrun began last."""
    return max(int(p) for p in Path(f"/proc/{agent}/task/{agent}/children").read_text().split())


REFUSED = """
import os, sys
from apiece.cli import main

os.chdir(os.environ["RANK"])

def refused(*words):
    before = sorted(os.listdir())
    try:
        main([*words])
    except SystemExit as end:
        assert end.code == 2 and sorted(os.listdir()) == before, os.listdir()
    else:
        raise AssertionError(words)

run = ["run", "--drift", "none", "--rounds", "1", *sys.argv[1:]]
refused(*run, "--algorithm", "scafold", "--out", "x")
refused(*run, "--out", "x")
refused(*run, "--seeds", "0,1", "--out", "deep/x")
refused(*run, "--device", "cuda", "--out", "x")
refused("resume", "both", "--device", "cuda")
refused("resume", "both")
refused("resume", "one")
refused(*run, "--algorithm", "scaffold")
print("told", flush=True)
main(["run", "--config", "one/run.toml", "--out", "x"])
"""


def test_who_says_what_is_refused_and_nothing_is_left(tmp_path):
    """Each rank has a working directory, so that no folder is one for all. The first says what all have been told, and
    whose it is; what a rank meets by itself, it says itself.
    """
    settings = SETTINGS.replace(" --seed 1", "").split()
    one, both = tmp_path / "0" / "one", tmp_path / "0" / "both"
    assert cli("run", "--rounds", "1", *settings, "--out", one).code == 0
    for copy in (both, tmp_path / "1" / "both"):
        shutil.copytree(one, copy)
    done = ended(2, tmp_path, REFUSED, *settings)
    said = [line.removeprefix("apiece: ") for line in done.stderr.splitlines() if line.startswith("apiece: ")]
    assert done.returncode != 0 and done.stdout.count("told") == 2, done.stderr
    expected = {
        "unknown name 'scafold'": 1,
        "rank 1: 'x' is not one folder for all ranks": 1,
        "rank 1: 'deep/x' is not one folder for all ranks": 1,
        "device='cuda' is for one process": 2,
        "rank 1: 'both' is not one folder for all ranks": 1,
        "rank 1: 'one' is no run folder": 1,
        "several ranks keep clients' rows in one folder": 1,
        "rank 1: several ranks keep clients' rows in one folder": 1,
        "rank 1: one/run.toml cannot be read": 1,
    }
    assert {words: sum(line.startswith(words) for line in said) for words in expected} == expected, said
    assert len(said) - sum(line.startswith("another rank of this run ended") for line in said) == sum(expected.values())


LATE = """
import os, sys, time
from apiece.report import page

page.write_report = lambda folders, out, target=None: print("written:", out) or out

from apiece.cli import main
from apiece.experiment import grid, launch

ensure = grid.ensure

def late(*given, **named):
    time.sleep(int(os.environ["RANK"]))
    ensure(*given, **named)

grid.ensure = launch.ensure = late
main(["grid", *sys.argv[1:], "--out", "many"])
main(["compare", "many/fedavg"])
"""


def test_a_grid_and_a_comparison_by_ranks_of_which_one_is_late(tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "write_report", lambda _, out, *rest: Path(out))
    words = ["--rows", "fedavg", "--columns", "nothing, relaxed_init(0.1)", "--rounds", "2", *SETTINGS.split()]
    done = ended(2, tmp_path, LATE, *words)
    assert done.returncode == 0, done.stderr
    assert cli("grid", *words, "--out", tmp_path / "one").code == 0
    assert cells(tmp_path / "many") == cells(tmp_path / "one") and not list(tmp_path.rglob("*.tmp"))
    said = done.stdout.splitlines()
    for line in ("many/grid.md", "written: many", "written: many/fedavg/seed-1", "written: many/report.html"):
        assert said.count(line) == 1, (line, said)
    assert sum(line.startswith(" fedavg ") for line in said) == 1 + 2  # in the grid's table, and in the comparison's


OTHERS = """
import os, sys
import numpy as np
from torch import nn
from apiece.cli import main
from apiece.errors import UserError
from apiece.experiment.launch import federate

first = os.environ["RANK"] == "0"

def refused(*words):
    try:
        main([*words])
    except SystemExit as end:
        assert end.code == 2 and not os.path.exists("x"), os.listdir()
    else:
        raise AssertionError(words)

run = ["run", "--drift", "none", "--rounds", "1", *sys.argv[1:], "--data-dir", "a" if first else "b"]
refused(*run, "--out", "x", "--lr", "0.1" if first else "0.2")
refused(*run, "--out", "x", *([] if first else ["--seeds", "0,1"]))
refused(*run, "--out", "x" if first else "y")
refused(*(["resume", "x"] if first else ["compare", "x"]))
os.chdir(os.environ["RANK"])
refused(*run, "--out", "x", "--data", "data.npz")
os.chdir("..")
module, data = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), (np.eye(12) * (1 + first), np.arange(12) % 2)
for what, given in (("the module's weights", {"model": module}), ("the data", {"data": data})):
    try:
        federate(**given, clients=2, split="iid", out="x", rounds=1)
    except UserError as error:
        assert error.met_by == 1 and f"the fingerprint of {what} is" in str(error) and not os.path.exists("x"), error
    else:
        raise AssertionError(given)
"""


def test_ranks_begun_with_other_words_or_data_are_refused(tmp_path):
    for rank, folder in enumerate(("0", "1")):
        (tmp_path / folder).mkdir()
        x, y = np.random.default_rng(rank).random((40, 64)), np.arange(40) % 10
        np.savez(tmp_path / folder / "data.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    done = ended(2, tmp_path, OTHERS, *SETTINGS.replace(" --seed 1", "").split())
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("apiece: ")]
    here = (
        "lr is 0.2 here and 0.1 on",
        "seeds is (0, 1) here and () on",
        "out is y here and x on",
        "the command is compare here and resume on",
        "data is /",
    )
    assert len(said) == len(here), said
    for line, words in zip(said, here, strict=True):
        assert line.startswith(f"apiece: rank 1: {words}") and line.endswith("data and packages."), line


def test_ranks_of_other_packages_are_refused(tmp_path):
    program = """
import os
from apiece.cli import main
from apiece.system import provenance

found = provenance.versions() | {"python": os.environ["RANK"]}
provenance.versions = lambda: found | ({"torch": "0.1"} if os.environ["RANK"] == "1" else {})
main(["run", "--out", "x"])
"""
    done = ended(2, tmp_path, program)
    said = [line for line in done.stderr.splitlines() if line.startswith("apiece: ")]
    assert done.returncode != 0 and len(said) == 1 and not (tmp_path / "x").exists(), done.stderr
    assert said[0].startswith(f"apiece: rank 1: torch is 0.1 here and {torch.__version__} on the first rank: begin")


def test_what_is_no_run_the_first_rank_does_alone(tmp_path):
    """Each once, of a run with rows that several ranks would share; and what goes wrong is one sentence."""
    run = ["run", "--algorithm", "scaffold", "--rounds", "1", *SETTINGS.split()]
    assert cli(*run, "--out", tmp_path / "one").code == 0
    x, y = np.zeros((4, 1, 8, 8), np.float32), np.arange(4)
    np.savez(tmp_path / "new.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    said = [
        "report one --out page.html",
        "export one --out model",
        "personalize one --data new.npz --out personal",
        "algorithms",
        "data",
        "run --rounds 1 --out many " + SETTINGS,  # and they meet again
        "export nowhere --out model",
    ]
    done = ended(2, tmp_path, COMMANDS, *said)
    lines = done.stdout.splitlines()
    assert [lines.count(words) for words in ("page.html", "model", "personal")] == [1, 1, 1], done.stderr
    assert sum(line.startswith("feddyn") for line in lines) == sum(line.startswith("digits") for line in lines) == 1
    assert (tmp_path / "many" / "model.safetensors").is_file() and not list(tmp_path.glob("*.tmp"))
    wrong = [line for line in done.stderr.splitlines() if line.startswith("apiece: ")]
    assert done.returncode != 0 and len(wrong) == 1 and "'nowhere' is no run folder" in wrong[0], done.stderr


def test_slots_are_dealt_without_telling(tmp_path):
    """Two ranks write at the same time, each in slots that the other does not use; a third finds all of it."""

    class Pair(Ranks):
        """Two ranks in one thread: what both say is put down beforehand."""

        said: list = []

        def everyone(self, value):
            return [value, value] if value is None or not isinstance(value, tuple) else self.said

        def first(self, action):
            return action()

    layout = RowFormat.of({"v": torch.zeros(3)})
    one, two = (SharedRows(tmp_path, layout, "run", Pair(rank, 2)) for rank in (0, 1))
    for t in range(6):
        mine = {0: [0, 2 + t], 1: [1]} if t % 2 else {0: [1], 1: [0, 3 + t]}
        for rank, rows in ((0, one), (1, two)):
            for client in mine[rank]:
                rows.stage(t, client, {"v": torch.full((3,), 10.0 * t + client)})
        told = [({c: tuple(w) for c, w in rows._staged.items()}, rows._sequence) for rows in (one, two)]
        Pair.said = told
        for rows in (one, two):
            rows.commit_staged()
        for rows in (one, two):
            rows.checkpoint(t + 1)
        assert one.digest() == two.digest()
    for client in range(9):
        a, b = one.get(client), two.get(client)
        assert (a is None and b is None) or torch.equal(a["v"], b["v"])
    digest = one.digest()
    one.close(), two.close()
    found = DiskRows(tmp_path, layout, "run")
    found.restore(6, digest)
    assert found.digest() == digest and torch.equal(found.get(1)["v"], torch.full((3,), 51.0))
    found.close()


@pytest.mark.parametrize("number, everyone", [(signal.SIGTERM, False), (signal.SIGINT, True)])
def test_a_signal_ends_all_ranks_in_a_sentence(tmp_path, number, everyone):
    """As a queue sends it to torchrun, which tells its ranks, and a terminal to all of them; it goes on."""
    words = ["run", "--algorithm", "scaffold", "--cohort", "4", "--rounds", "100000", *SETTINGS.split()]
    folder, logs = tmp_path / "run", tmp_path / "said"
    apart = ["--redirects", "3", "--log-dir", str(logs)]
    begun = subprocess.Popen(
        torchrun(2, *apart, "-m", "apiece", *words, "--out", str(folder)),
        stderr=subprocess.DEVNULL,
        env=THREADS,
        start_new_session=True,
    )
    try:
        until = time.monotonic() + 300
        while not list(folder.glob("checkpoints/*.safetensors")) and time.monotonic() < until:
            time.sleep(0.02)
        (os.killpg if everyone else os.kill)(begun.pid, number)
        begun.wait(timeout=60)
    finally:
        if begun.poll() is None:
            os.killpg(begun.pid, signal.SIGKILL)
    how = "interrupted; " if everyone else "rank {}: another rank of this run ended, or torchrun was asked to end; "
    for rank, path in enumerate(sorted(logs.rglob("stderr.log"))):
        sentence = f"apiece: {how.format(rank)}`apiece resume {folder}` continues the run.\n"
        ours = [line for line in path.read_text().splitlines(True) if "apiece: " in line]
        assert ours == ([] if everyone and rank else [sentence]) and "Traceback" not in path.read_text()
    assert cli("export", folder, "--out", tmp_path / "model").code == 0
