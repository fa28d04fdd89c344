"""A crash at every write, flush and rename: the run that goes on ends as the one that never stopped, to the bit.

`Disk` stands in for the operations of `apiece.system.files`. It stops the run at the n-th of them (a killed process:
what was written stays, the last write perhaps by half), and models a power cut: of what was written or renamed since
the last flush any part may be lost, in any order, by halves too.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from support import tiers

from apiece.storage import checkpoint
from apiece.storage.disk import DiskRows, RowFormat
from apiece.system import files

RUN, ROUNDS, EVERY, CLIENTS = "run-1", 8, 2, 6
LAYOUT = RowFormat([("model", (5,), torch.float32), ("steps", (), torch.int64), ("met", (2,), torch.bool)])
FOLDER = object()


class Crash(BaseException):
    """The process is gone: nothing may catch this, nothing more reaches the disk."""


class Disk:
    """Counts the operations, stops at one, knows what a power cut may leave. Files are objects, names point to them."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.real = root, {}
        for name in ("create", "open_existing", "pwrite", "fsync", "replace", "remove", "sync_folder", "make"):
            self.real[name] = getattr(files, name)
            monkeypatch.setattr(files, name, getattr(self, name))
        self.reset()

    def reset(self) -> None:
        """An empty disk."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        self.names, self.sure_names, self.unsure_names = {}, {}, []  # path -> file; (folder, changes)
        self.sure, self.unsure, self.opened = {}, {}, {}  # file -> content; file -> writes; descriptor -> file
        self.arm(0)

    def arm(self, at: int, half: bool = False) -> None:
        """Stop at the operation `at` from here (0: never), a write being done by half."""
        self.count, self.at, self.half, self.dead = 0, at, half, False

    def _step(self, act: Callable[[], object], half: Callable[[], object] = lambda: None) -> None:
        self.count += 1
        if not self.dead and self.count == self.at:
            self.dead = True
            if self.half:
                half()
        if self.dead:
            raise Crash
        act()

    def _name(self, *changes: tuple[Path, object]) -> None:
        for path, file in changes:
            self.names[path] = file
        self.unsure_names.append((changes[0][0].parent, changes))

    def create(self, path: Path) -> files.Handle:
        self._step(lambda: None)
        handle, file = self.real["create"](path), object()
        self._name((path, file))
        self.sure[file], self.unsure[file], self.opened[handle.descriptor] = bytearray(), [], file
        return handle

    def open_existing(self, path: Path) -> files.Handle:
        handle = self.real["open_existing"](path)
        self.opened[handle.descriptor] = self.names[path]
        return handle

    def pwrite(self, handle: files.Handle, data: bytes, offset: int) -> None:
        def write(part: bytes) -> None:
            self.real["pwrite"](handle, part, offset)
            self.unsure[self.opened[handle.descriptor]].append((offset, bytes(part)))

        self._step(lambda: write(data), lambda: write(data[: len(data) // 2]))

    def fsync(self, handle: files.Handle) -> None:
        self._step(lambda: self._settle(self.opened[handle.descriptor], np.random.default_rng(0), 1.0))

    def replace(self, source: Path, target: Path) -> None:
        def rename() -> None:
            self.real["replace"](source, target)
            self._name((target, self.names[source]), (source, None))

        self._step(rename)

    def remove(self, path: Path) -> None:
        self._step(lambda: (self.real["remove"](path), self._name((path, None))))

    def make(self, folder: Path) -> None:
        self._step(lambda: (self.real["make"](folder), self._name((folder, FOLDER))))

    def sync_folder(self, folder: Path) -> None:
        def settle() -> None:
            for _, changes in [entry for entry in self.unsure_names if entry[0] == folder]:
                self.sure_names.update(changes)
            self.unsure_names = [entry for entry in self.unsure_names if entry[0] != folder]

        self._step(settle)

    def _settle(self, file: object, rng: np.random.Generator, share: float) -> None:
        """Of the writes not yet flushed this share reaches the disk, and of the others sometimes one half."""
        content = self.sure[file]
        for offset, data in self.unsure[file]:
            start, stop = 0, len(data)
            if rng.random() >= share:
                half = len(data) // 2
                start, stop = ((0, 0), (0, half), (half, len(data)))[rng.integers(3) if share else 0]
            if stop > start:
                content.extend(bytes(max(0, offset + stop - len(content))))
                content[offset + start : offset + stop] = data[start:stop]
        self.unsure[file] = []

    def cut(self, rng: np.random.Generator, share: float) -> None:
        """The power goes: only what was flushed is sure."""
        for _, changes in self.unsure_names:
            if rng.random() < share:
                self.sure_names.update(changes)
        for file in self.sure:
            self._settle(file, rng, share)
        shutil.rmtree(self.root)
        self.root.mkdir()
        names: dict[Path, object] = {}
        for path in sorted(self.sure_names):
            file = self.sure_names[path]
            if file is None or not path.parent.is_dir():
                continue
            names[path] = file
            path.mkdir() if file is FOLDER else path.write_bytes(self.sure[file])
        self.names, self.sure_names, self.unsure_names = dict(names), dict(names), []


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


@pytest.mark.parametrize("half", [False, True])
def test_killed_at_every_operation(disk, half):
    for at in range(1, operations(disk) + 1):
        disk.reset()
        disk.arm(at, half)
        with pytest.raises(Crash):
            play(disk.root / "run", [], 0)
        disk.arm(0)
        check(play(disk.root / "run", [], 0), UNHURT)


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
