"""Rows in memory and on disk keep one contract; checkpoints and files refuse, by name, what is not whole."""

from __future__ import annotations

import errno
import os
import weakref

import numpy as np
import pytest
import torch

from apiece.errors import UserError
from apiece.storage import checkpoint
from apiece.storage.disk import HEADER_SIZE, START, DiskRows
from apiece.storage.row_format import RowFormat, StoreError
from apiece.storage.rows import MemoryRows
from apiece.system import files

LAYOUT = RowFormat(
    [
        ("model", (3, 2), torch.float32),
        ("sum", (2,), torch.float64),
        ("half", (3,), torch.bfloat16),
        ("steps", (), torch.int64),
        ("met", (5,), torch.bool),
        ("nothing", (0,), torch.float32),
    ]
)


def row(value: float) -> dict[str, torch.Tensor]:
    return {name: torch.full(tuple(shape), value).to(dtype) for name, shape, dtype in LAYOUT.fields}


def same(first, second) -> bool:
    return list(first) == list(second) and all(
        first[name].dtype == second[name].dtype and torch.equal(first[name], second[name]) for name in first
    )


@pytest.fixture(params=["memory", "disk"])
def rows(request, tmp_path):
    store = MemoryRows(LAYOUT) if request.param == "memory" else DiskRows(tmp_path, LAYOUT, "run")
    yield store
    store.close()


def test_rows_come_back_as_they_were(rows):
    assert rows.get(7) is None and rows.last_round(7) == -1 and len(rows) == 0 and rows.touched() == []
    first = {name: torch.randn(tuple(shape)).to(dtype) for name, shape, dtype in LAYOUT.fields}
    rows.commit(0, [(7, first), (3, row(1))])
    rows.commit(1, [(3, row(2))])
    assert same(rows.get(7), first) and same(rows.get(3), row(2))
    assert rows.touched() == [3, 7] and len(rows) == 2 and rows.last_round(3) == 1 and rows.last_round(7) == 0
    assert rows.get(7)["model"].is_contiguous() and rows.get(7)["steps"].shape == ()


def test_expected_rows_are_fetched_where_they_lie(tmp_path, monkeypatch):
    """The bytes asked for ahead are those that a read asks for; a client without a row has none."""
    store, ahead, read = DiskRows(tmp_path, LAYOUT, "run"), [], []
    store.commit(0, [(client, row(client)) for client in (4, 2, 9)])
    monkeypatch.setattr(files, "will_read", lambda file, size, at: ahead.append((size, at)))
    whole = files.pread
    monkeypatch.setattr(files, "pread", lambda file, size, at: read.append((size, at)) or whole(file, size, at))
    store.expect([9, 5, 4])
    assert same(store.get(9), row(9)) and same(store.get(4), row(4)) and ahead == read
    store.close()


def test_a_copy_is_fresh_both_ways(rows):
    given = row(1)
    rows.commit(0, [(0, given)])
    given["model"].fill_(9)
    rows.get(0)["model"].fill_(9)
    assert same(rows.get(0), row(1))


def test_a_view_with_strides_is_stored_as_what_it_shows(rows):
    strided = {**row(1), "model": torch.arange(6.0).reshape(2, 3).T}
    rows.commit(0, [(0, strided)])
    assert torch.equal(rows.get(0)["model"], strided["model"])


def test_changes_are_a_stream_of_which_one_row_is_held(rows):
    def changes():
        last = weakref.ref(set())  # of nothing any more
        for client in range(5):
            assert last() is None, "the row before was still held"
            new = row(client)
            last = weakref.ref(new["model"])
            yield client, new
            del new

    rows.commit(0, changes())
    assert len(rows) == 5


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {**row(0), "more": torch.zeros(1)},
        {**row(0), "model": torch.zeros(2, 3)},
        {**row(0), "steps": torch.zeros(())},
    ],
)
def test_a_row_of_another_layout_is_refused(rows, wrong):
    with pytest.raises(StoreError, match="the store holds model"):
        rows.commit(0, [(0, wrong)])
    assert rows.get(0) is None


def test_staged_rows_count_when_they_are_committed(rows):
    rows.commit(0, [(1, row(1))])
    rows.stage(1, 1, row(2))
    rows.stage(1, 2, row(2))
    assert same(rows.get(1), row(1)) and rows.get(2) is None and rows.touched() == [1]
    rows.stage(1, 1, row(3))  # the same round done again
    rows.commit_staged()
    assert same(rows.get(1), row(3)) and same(rows.get(2), row(2)) and rows.last_round(1) == 1
    rows.stage(2, 5, row(4))
    rows.stage(3, 6, row(4))  # the round before was given up
    rows.commit_staged()
    assert rows.touched() == [1, 2, 6]
    rows.stage(4, 7, row(4))
    rows.unstage()
    rows.commit_staged()
    assert rows.touched() == [1, 2, 6]


def test_rows_never_counted_are_in_no_checkpoint(rows, tmp_path):
    rows.commit(0, [(1, row(1))])
    rows.stage(1, 2, row(2))
    rows.stage(1, 2, row(3))
    for client in (4, 5, 6):
        rows.stage(1, client, row(3))
    rows.unstage()
    rows.commit(1, [(3, row(3))])
    rows.sync()
    digest = rows.digest()
    rows.checkpoint(2)
    rows.stage(2, 4, row(4))
    if isinstance(rows, DiskRows):
        rows.close()
        rows = DiskRows(tmp_path, LAYOUT, "run")
    rows.restore(2, digest)
    rows.commit_staged()
    assert rows.touched() == [1, 3]
    rows.close()


def test_changes_that_fail_leave_all_rows_as_they_were(rows):
    rows.commit(0, [(1, row(1))])
    with pytest.raises(StoreError):
        rows.commit(1, [(1, row(2)), (2, {})])
    rows.commit_staged()
    assert same(rows.get(1), row(1)) and rows.touched() == [1]


# a case catches an order of rounds, checkpoints and restorations that frees a slot too early
@pytest.mark.parametrize("case", range(20))
def test_restores_either_of_the_last_two_checkpoints(rows, case, tmp_path):
    """Against snapshots of a plain dict, over random rounds, checkpoints, restores and reopenings."""
    rng = np.random.default_rng(case)
    plain: dict[int, tuple[int, float]] = {}
    snapshots = {0: ({}, rows.digest())}
    older = newer = t = 0
    on_disk = isinstance(rows, DiskRows)
    for _ in range(60):
        action = rng.integers(8)
        if action < 4:
            new = {
                int(client): (t, float(rng.random())) for client in rng.choice(6, int(rng.integers(4)), replace=False)
            }
            rows.commit(t, ((client, row(value)) for client, (_, value) in new.items()))
            plain.update(new)
            t += 1
        elif action < 6 and t > newer:
            rows.sync()
            snapshots[t] = (dict(plain), rows.digest())
            rows.checkpoint(t)
            older, newer = newer, t
        else:
            number = newer if action < 7 else older
            if on_disk and rng.integers(2):
                rows.close()
                rows = DiskRows(tmp_path, LAYOUT, "run")
            rows.restore(number, snapshots[number][1])
            plain, t = dict(snapshots[number][0]), number
            older, newer = min(older, number), number
        assert rows.touched() == sorted(plain) and rows.digest() == (snapshots[t][1] if t == newer else rows.digest())
        for client, (written, value) in plain.items():
            assert rows.last_round(client) == written and same(rows.get(client), row(value))
        if on_disk:
            assert rows._slots <= 3 * 6 + 3
    rows.close()


def test_the_digest_is_of_the_rows_wherever_they_are(tmp_path):
    memory, disk = MemoryRows(LAYOUT), DiskRows(tmp_path, LAYOUT, "run")
    for store in (memory, disk):
        store.commit(0, [(1, row(1)), (2, row(2))])
    assert memory.digest() == disk.digest()
    disk.commit(1, [(1, row(1))])
    assert memory.digest() != disk.digest()
    disk.close()


def test_rows_of_other_checkpoints_are_refused(rows):
    for t in range(6):
        rows.commit(t, [(0, row(t))])
        rows.checkpoint(t + 1)
    rows.commit(6, [(0, row(6))])
    with pytest.raises(StoreError, match="checkpoint 3"):
        rows.restore(3)
    with pytest.raises(StoreError, match="checkpoint 6"):
        rows.restore(6, "another digest")
    assert same(rows.get(0), row(6))
    rows.restore(6)
    assert same(rows.get(0), row(5))


def test_memory_does_not_outlive_its_process():
    with pytest.raises(StoreError, match="on disk"):
        MemoryRows(LAYOUT).restore(4)


def test_a_file_opened_again_is_read_but_not_written_before_it_is_restored(tmp_path):
    first = DiskRows(tmp_path, LAYOUT, "run")
    first.commit(0, [(5, row(1))])
    first.close()
    first.close()
    again = DiskRows(tmp_path, LAYOUT, "run")
    assert same(again.get(5), row(1)) and again.last_round(5) == 0
    with pytest.raises(StoreError, match="earlier start"):
        again.commit(1, [(5, row(2))])
    again.restore(0)
    assert again.get(5) is None
    again.commit(0, [(5, row(2))])
    assert same(again.get(5), row(2))
    again.close()


def test_rows_of_a_way_not_taken_never_come_back(tmp_path):
    store = DiskRows(tmp_path, LAYOUT, "run")
    store.commit(0, [(client, row(1)) for client in range(6)])
    store.close()
    store = DiskRows(tmp_path, LAYOUT, "run")
    store.restore(0)
    store.commit(0, [(3, row(2))])
    store.sync()
    digest = store.digest()
    store.checkpoint(1)
    store.close()
    store = DiskRows(tmp_path, LAYOUT, "run")
    store.restore(1, digest)
    assert store.touched() == [3] and same(store.get(3), row(2))
    store.close()


def test_files_of_others_are_refused_by_name(tmp_path):
    DiskRows(tmp_path, LAYOUT, "run").close()
    with pytest.raises(StoreError, match=r"clients\.rows: belongs to run run, not to other"):
        DiskRows(tmp_path, LAYOUT, "other")
    with pytest.raises(StoreError, match="laid out otherwise"):
        DiskRows(tmp_path, RowFormat(LAYOUT.fields[:2]), "run")
    (tmp_path / "clients.rows").write_bytes(b"something else")
    with pytest.raises(StoreError, match="no file of rows"):
        DiskRows(tmp_path, LAYOUT, "run")


def flip(path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_rotten_row_is_refused_when_read_and_a_rotten_header_when_restored(tmp_path):
    store = DiskRows(tmp_path, LAYOUT, "run")
    store.commit(0, [(4, row(1)), (8, row(2))])
    store.sync()
    digest, at = store.digest(), store._row_at(1)
    store.close()
    flip(tmp_path / "clients.rows", at)
    store = DiskRows(tmp_path, LAYOUT, "run")
    store.restore(1, digest)
    assert same(store.get(4), row(1))
    with pytest.raises(StoreError, match=r"clients\.rows: the row of client 8, written in round 1, is damaged"):
        store.get(8)
    with pytest.raises(StoreError, match=r"clients\.rows: the row of client 8, written in round 1, is damaged"):
        store.check(1, digest)
    store.close()
    for byte in range(START + HEADER_SIZE, START + HEADER_SIZE + 60):
        flip(tmp_path / "clients.rows", byte)
        store = DiskRows(tmp_path, LAYOUT, "run")
        with pytest.raises(StoreError, match="lost, damaged"):
            store.restore(1, digest)
        store.close()
        flip(tmp_path / "clients.rows", byte)


def test_clients_cost_what_the_touched_ones_cost(tmp_path):
    layout = RowFormat([("model", (50_000,), torch.float32)])
    store = DiskRows(tmp_path, layout, "run")
    store.commit(0, ((client, {"model": torch.ones(50_000)}) for client in range(0, 100_000, 10_000)))
    store.sync()
    used = os.stat(tmp_path / "clients.rows").st_blocks * 512
    assert 10 * layout.size <= used < 10 * layout.size + 200_000 and len(store) == 10
    store.close()


def test_many_slots_span_groups_and_are_found_again(tmp_path):
    layout = RowFormat([("value", (), torch.int64)])
    store = DiskRows(tmp_path, layout, "run")
    store.commit(0, ((client, {"value": torch.tensor(client)}) for client in range(3000)))
    digest = store.digest()
    store.close()
    store = DiskRows(tmp_path, layout, "run")
    store.restore(1, digest)
    assert [int(store.get(client)["value"]) for client in (0, 1023, 1024, 2999)] == [0, 1023, 1024, 2999]  # pyright: ignore
    store.close()


@pytest.fixture
def full(monkeypatch):
    """A disk that becomes full after some bytes."""

    def after(count: int) -> None:
        room, write = [count], os.pwrite

        def pwrite(descriptor, data, offset):
            if not room[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            done = write(descriptor, data[: room[0]], offset)
            room[0] -= done
            return done

        monkeypatch.setattr(os, "pwrite", pwrite)

    return after


@pytest.mark.parametrize("room", [0, 10, LAYOUT.size, LAYOUT.size + 10])
def test_a_full_disk_leaves_the_row_before(tmp_path, full, room):
    store = DiskRows(tmp_path, LAYOUT, "run")
    store.commit(0, [(0, row(1))])
    full(room)
    with pytest.raises(UserError, match=r"clients\.rows: the disk is full: \d+ bytes were needed"):
        store.commit(1, [(0, row(2))])
    assert same(store.get(0), row(1)) and store.last_round(0) == 0
    store.close()


def test_a_full_disk_leaves_the_old_file(tmp_path, full):
    files.atomic_write(tmp_path / "a.txt", b"old")
    full(3)
    with pytest.raises(UserError, match=r"the disk is full: 1,000 bytes were needed and [\d,]+ are free"):
        files.atomic_write(tmp_path / "a.txt", b"n" * 1000)
    assert (tmp_path / "a.txt").read_bytes() == b"old" and os.listdir(tmp_path) == ["a.txt"]


def test_a_failed_flush_ends_the_store(tmp_path, monkeypatch):
    store = DiskRows(tmp_path, LAYOUT, "run")
    store.commit(0, [(0, row(1))])

    def fail(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch, pytest.raises(UserError, match="could not be flushed"):
        patch.setattr(os, "fsync", fail)
        store.sync()
    with pytest.raises(ValueError):
        store.sync()


def tensors() -> dict[str, torch.Tensor]:
    base = torch.arange(6, dtype=torch.float64)
    return {"server": base, "shared": base[2:4], "flag": torch.tensor(True), "low": torch.ones(3, dtype=torch.bfloat16)}


def test_checkpoints_come_back_and_two_are_kept(tmp_path):
    assert checkpoint.latest(tmp_path, "run") == (None, [])
    for number in (2, 4, 12):
        checkpoint.write(tmp_path, number, tensors(), {"rows": str(number)}, "run")
    folder = tmp_path / "checkpoints"
    assert sorted(os.listdir(folder)) == ["round-000004.safetensors", "round-000012.safetensors"]
    number, found, about = checkpoint.read(folder / "round-000004.safetensors", "run")
    assert number == 4 and about == {"rows": "4"} and same(dict(sorted(found.items())), dict(sorted(tensors().items())))
    newest, refused = checkpoint.latest(tmp_path, "run")
    assert newest is not None and newest.number == 12 and refused == []
    checkpoint.set_aside(tmp_path, 4)
    newest, refused = checkpoint.latest(tmp_path, "run")
    assert newest is not None and newest.number == 4


def test_the_checkpoint_before_serves_where_the_newest_is_refused(tmp_path):
    checkpoint.write(tmp_path, 2, tensors(), {}, "run")
    path = checkpoint.write(tmp_path, 4, tensors(), {}, "run")
    path.write_bytes(path.read_bytes()[:-3])
    newest, refused = checkpoint.latest(tmp_path, "run")
    assert newest is not None and newest.number == 2
    assert len(refused) == 1 and "round-000004.safetensors: is no whole checkpoint" in refused[0]
    newest, refused = checkpoint.latest(tmp_path, "other")
    assert newest is None and "belongs to run run, not to other" in refused[1]
    path.write_bytes((tmp_path / "checkpoints/round-000002.safetensors").read_bytes())
    newest, refused = checkpoint.latest(tmp_path, "run")
    assert newest is not None and newest.number == 2 and "holds checkpoint 2" in refused[0]


def test_any_damage_of_a_checkpoint_is_seen(tmp_path):
    path = checkpoint.write(tmp_path, 2, tensors(), {"note": "a"}, "run")
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"round-000002\.safetensors"):
            checkpoint.read(path, "run")
    for position in range(len(whole)):
        path.write_bytes(whole)
        flip(path, position)
        try:
            number, found, about = checkpoint.read(path, "run")
        except UserError as error:
            assert "round-000002.safetensors" in str(error)
        else:  # a space between the words became another space
            assert (number, about) == (2, {"note": "a"}) and all(
                same({"": found[n]}, {"": t}) for n, t in tensors().items()
            )
    with pytest.raises(UserError, match="could not be read"):
        checkpoint.read(tmp_path / "none", "run")
