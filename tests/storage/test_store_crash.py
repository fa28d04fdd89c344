"""A crash at every write, flush and rename: the run that goes on ends as the one that never stopped, to the bit.

`Disk` stands in for the operations of `apiece.system.files`. It stops the run at the n-th of them (a killed process:
what was written stays, the last write perhaps by half), and models a power cut: of what was written or renamed since
the last flush any part may be lost, in any order, by halves too.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from support import tiers
from support.crashes import Crash, Disk

from apiece.storage import checkpoint
from apiece.storage.disk import DiskRows
from apiece.storage.row_format import RowFormat

RUN, ROUNDS, EVERY, CLIENTS = "run-1", 8, 2, 6
LAYOUT = RowFormat([("model", (5,), torch.float32), ("steps", (), torch.int64), ("met", (2,), torch.bool)])


@cache
def cohort(seed: int, t: int) -> list[int]:
    return np.random.default_rng([seed, t]).choice(CLIENTS, 3, replace=False).tolist()


def train(row: dict | None, client: int, t: int, server: torch.Tensor) -> dict:
    model = torch.full((5,), float(client)) if row is None else row["model"] * 0.7
    steps = torch.tensor(0) if row is None else row["steps"]
    return {"model": model + server.float() / (t + 1), "steps": steps + 1, "met": torch.tensor([t % 2 == 0, True])}


def reference(seeds: list[int]) -> tuple[dict[int, dict], torch.Tensor]:
    """The run without a disk; round t draws its cohort with `seeds[t]`."""
    rows: dict[int, dict] = {}
    server = torch.zeros(5, dtype=torch.float64)
    for t, seed in enumerate(seeds):
        new = {client: train(rows.get(client), client, t, server) for client in cohort(seed, t)}
        rows.update(new)
        server = server + sum(row["model"].double() for row in new.values()) / 3
    return rows, server


UNHURT = reference([0] * ROUNDS)


def play(folder: Path, seeds: list[int], seed: int) -> tuple[dict[int, dict], torch.Tensor]:
    """Begin or go on with the run on disk, drawing with `seed` from there on (noted in `seeds`)."""
    found, _ = checkpoint.latest(folder, RUN)
    number, server = (found.number, found.tensors["server"]) if found else (0, torch.zeros(5, dtype=torch.float64))
    checkpoint.set_aside(folder, number)
    rows = DiskRows(folder, LAYOUT, RUN)
    try:
        rows.restore(number, found.about["rows"] if found else None)
        seeds[number:] = [seed] * (ROUNDS - number)
        for t in range(number, ROUNDS):
            new = [(client, train(rows.get(client), client, t, server)) for client in cohort(seed, t)]
            rows.commit(t, iter(new))
            server = server + sum(row["model"].double() for _, row in new) / 3
            if (t + 1) % EVERY == 0:
                rows.sync()
                checkpoint.write(folder, t + 1, {"server": server}, {"rows": rows.digest()}, RUN)
                rows.checkpoint(t + 1)
        assert rows._slots <= 3 * CLIENTS + 3
        return {client: rows.get(client) for client in rows.touched()}, server  # pyright: ignore
    finally:
        rows.close()


def check(result: tuple, expected: tuple) -> None:
    assert torch.equal(result[1], expected[1])
    assert result[0].keys() == expected[0].keys()
    for client, row in expected[0].items():
        for name, tensor in row.items():
            assert torch.equal(result[0][client][name], tensor), (client, name)


def damage_newest(disk: Disk, rng: np.random.Generator) -> None:
    """Spoil one byte of the newest checkpoint."""
    if paths := sorted((disk.root / "run" / "checkpoints").glob("round-*.safetensors")):
        content = disk.sure[disk.names[paths[-1]]]
        content[-1 - int(rng.integers(40))] ^= 1
        paths[-1].write_bytes(content)


@pytest.fixture
def disk(tmp_path, monkeypatch):
    return Disk(tmp_path / "disk", monkeypatch)


def operations(disk: Disk) -> int:
    check(play(disk.root / "run", [], 0), UNHURT)
    total = disk.count
    assert total > 60
    return total


@pytest.mark.slow
@pytest.mark.parametrize("half", [False, True])
def test_killed_at_every_operation(disk, half):
    for at in range(1, operations(disk) + 1):
        disk.reset()
        disk.arm(at, half)
        with pytest.raises(Crash):
            play(disk.root / "run", [], 0)
        disk.arm(0)
        check(play(disk.root / "run", [], 0), UNHURT)


# shares catch a flush left out: none of what is unsure is there, some, or all but its order
@pytest.mark.slow
@pytest.mark.parametrize("share", tiers.but((0.3,), [0.0, 0.3, 0.7, 1.0]))
def test_power_cut_at_every_operation(disk, share):
    for at in range(1, operations(disk) + 1):
        disk.reset()
        disk.arm(at, half=at % 2 == 0)
        with pytest.raises(Crash):
            play(disk.root / "run", [], 0)
        disk.cut(np.random.default_rng(at), share)
        disk.arm(0)
        check(play(disk.root / "run", [], 0), UNHURT)


@pytest.mark.slow
@pytest.mark.parametrize("cut", tiers.but((True,), [False, True]))
def test_falling_back_one_checkpoint(disk, cut):
    for at in range(1, operations(disk) + 1):
        rng = np.random.default_rng(at)
        disk.reset()
        disk.arm(at, half=at % 2 == 0)
        with pytest.raises(Crash):
            play(disk.root / "run", [], 0)
        if cut:
            disk.cut(rng, 0.5)
        damage_newest(disk, rng)
        disk.arm(0)
        check(play(disk.root / "run", [], 0), UNHURT)


# a case catches an order of crashes and cuts after which a row of a way not taken is there
@pytest.mark.parametrize("case", tiers.but(range(40), range(200)))
def test_many_crashes_each_start_going_another_way(disk, case):
    """Other cohorts after each start: rows of a way not taken never come back."""
    rng, seeds = np.random.default_rng(case), []
    starts = int(rng.integers(2, 6))
    damaged = int(rng.integers(starts))
    for seed in range(starts):
        disk.arm(int(rng.integers(1, 50)), half=bool(rng.integers(2)))
        with suppress(Crash):
            play(disk.root / "run", seeds, seed)
        if rng.integers(2):
            disk.cut(rng, float(rng.choice([0.0, 0.3, 0.7, 1.0])))
        if seed == damaged:  # one at most: two are kept
            damage_newest(disk, rng)
    disk.arm(0)
    result = play(disk.root / "run", seeds, starts)
    check(result, reference(seeds))


@pytest.mark.slow
def test_power_cut_after_a_start_that_was_killed(disk):
    """What a killed start had made but not flushed is there to see, and still gone when the power goes."""
    total = operations(disk)
    for killed in range(1, 16):
        for at in range(1, total - 16, 5):
            disk.reset()
            for stop in (killed, at):
                disk.arm(stop)
                with pytest.raises(Crash):
                    play(disk.root / "run", [], 0)
            disk.cut(np.random.default_rng(0), 0.0)
            disk.arm(0)
            check(play(disk.root / "run", [], 0), UNHURT)


def test_what_was_said_to_be_on_the_disk_is_there_after_a_start_that_was_killed(disk):
    """The run's end, and rows of their own, survive the loss of all that was not flushed."""
    operations(disk)
    for killed in range(1, 16):
        disk.reset()
        disk.arm(killed)
        with pytest.raises(Crash):
            play(disk.root / "run", [], 0)
        disk.arm(0)
        play(disk.root / "run", [], 0)
        disk.cut(np.random.default_rng(0), 0.0)
        newest, refused = checkpoint.latest(disk.root / "run", RUN)
        assert newest is not None and newest.number == ROUNDS and not refused
    for killed in range(1, 11):
        disk.reset()
        disk.arm(killed)
        with suppress(Crash):
            DiskRows(disk.root / "run", LAYOUT, RUN).close()
        disk.arm(0)
        rows = DiskRows(disk.root / "run", LAYOUT, RUN)
        rows.commit(0, [(3, train(None, 3, 0, torch.zeros(5)))])
        rows.sync()
        rows.close()
        disk.cut(np.random.default_rng(0), 0.0)
        rows = DiskRows(disk.root / "run", LAYOUT, RUN)
        assert rows.touched() == [3]
        rows.close()


@pytest.mark.slow
def test_power_cut_after_a_fall_back_that_was_killed(disk):
    """The checkpoint set aside is whole, only later than the one that was asked for: it must not come back."""
    operations(disk)
    for killed in range(1, 6):
        for at in range(2, 26, 2):
            disk.reset()
            disk.arm(at=60)
            with pytest.raises(Crash):
                play(disk.root / "run", [], 0)
            seeds, newest = [0] * ROUNDS, checkpoint.latest(disk.root / "run", RUN)[0]
            assert newest is not None and newest.number == 2 * EVERY
            disk.arm(killed)
            with pytest.raises(Crash):
                checkpoint.set_aside(disk.root / "run", EVERY)
                play(disk.root / "run", seeds, 1)
            disk.arm(at)
            with pytest.raises(Crash):
                checkpoint.set_aside(disk.root / "run", EVERY)
                play(disk.root / "run", seeds, 2)
            disk.cut(np.random.default_rng(0), 0.0)
            disk.arm(0)
            check(play(disk.root / "run", seeds, 3), reference(seeds))


def test_the_crashes_find_a_flush_left_out(disk, monkeypatch):
    """The law has teeth: without the flush of the rows before a checkpoint it fails."""
    monkeypatch.setattr(DiskRows, "sync", lambda self: None)
    failures = 0
    for at in range(20, 80):
        disk.reset()
        disk.arm(at)
        with pytest.raises(Crash):
            play(disk.root / "run", [], 0)
        disk.cut(np.random.default_rng(at), 0.3)
        disk.arm(0)
        try:
            check(play(disk.root / "run", [], 0), UNHURT)
        except ValueError as error:  # and the digest says so
            assert "lost, damaged or replaced" in str(error)
            failures += 1
    assert failures > 20
