"""Several ranks under torchrun: the run of one process, resumed on another number of ranks, and told of a lost one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch
from helpers import gap

from driftless import shared_rows
from driftless.launch import resume
from driftless.ranks import Ranks
from driftless.rows import Layout
from driftless.shared_rows import SharedRows
from driftless.store import DiskRows

SETTINGS = "--data digits --clients 6 --model softmax_regression --steps 3 --batch 8 --seed 1 --precision float64"
SETTINGS += " --lift sequential --eval-every 2 --panel 2"


def command(ranks: int, *words: str) -> list[str]:
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    return [sys.executable, *run, "-m", "driftless", *words]


def go(ranks: int, *words: str) -> subprocess.CompletedProcess:
    threads = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command(ranks, *words), capture_output=True, text=True, timeout=240, env=threads)


def model(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


@pytest.mark.parametrize(
    "algorithm, cohort, ranks",
    [
        ("scaffold + relaxed_init(beta=0.1)", "0.7", 2),
        ("fedals(alpha=2) + fedcm", "1", 3),
        ("pefll(embedding=linear, size=S)", "0.5", 2),
        ("fedavg", "0.1", 2),  # one client a round: the other rank has none
    ],
)
def test_ranks_make_the_run_of_one_process(tmp_path, algorithm, cohort, ranks):
    words = ["run", "--algorithm", algorithm, "--cohort", cohort, "--rounds", "4", *SETTINGS.split()]
    for count in (1, ranks):
        done = go(count, *words, "--out", str(tmp_path / str(count)))
        assert done.returncode == 0, done.stderr
    one, many = model(tmp_path / "1"), model(tmp_path / str(ranks))
    assert one.keys() == many.keys() and max(gap(one[k], many[k]) for k in one) < 1e-10


def test_goes_on_with_another_number_of_ranks(tmp_path):
    """Begun by two, stopped by a lost one, ended by one process: the run that was never stopped."""
    words = ["run", "--algorithm", "scaffold", "--cohort", "4", "--rounds", "40", *SETTINGS.split()]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert go(1, *words, "--out", str(whole)).returncode == 0
    threads = os.environ | {"OMP_NUM_THREADS": "1"}
    begun = subprocess.Popen(
        command(2, *words, "--out", str(broken)), stderr=subprocess.PIPE, text=True, env=threads, start_new_session=True
    )
    try:
        until = time.monotonic() + 120
        while not list(broken.glob("checkpoints/*")) and time.monotonic() < until:
            time.sleep(0.02)
        os.kill(last_rank(begun.pid), signal.SIGKILL)
        said = begun.communicate(timeout=120)[1]
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


def test_bad_input_is_said_once(tmp_path):
    done = go(2, "run", "--algorithm", "scafold", *SETTINGS.split(), "--out", str(tmp_path / "run"))
    assert done.returncode != 0 and done.stderr.count("driftless: ") == 1 and "scaffold" in done.stderr
    done = go(2, "run", "--algorithm", "scaffold", *SETTINGS.split())
    assert done.returncode != 0 and "--out that all of them share" in done.stderr


def test_slots_are_dealt_without_telling(tmp_path, monkeypatch):
    """Two ranks write at the same time, each in slots that the other does not use; a third finds all of it."""
    monkeypatch.setattr(shared_rows, "_refuse_unshared", lambda folder, ranks: None)

    class Pair(Ranks):
        """Two ranks in one thread: what both say is put down beforehand."""

        said: list = []

        def everyone(self, value):
            return [value, value] if value is None or not isinstance(value, tuple) else self.said

        def first(self, action):
            return action()

    layout = Layout.of({"v": torch.zeros(3)})
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
