"""Rows on disk, in one file that a crash cannot spoil: copy on write, no journal.

The file begins with a block that names its run; then come groups of `GROUP` headers followed by `GROUP` rows of fixed
size. Slot s is the s-th header and the s-th row. A new row goes to a free slot, first its bytes and then its header;
what the last two checkpoints need is never overwritten. So nothing has to be undone: the rows of checkpoint n are, for
each client, the newest row written in a round below n. Compared with an undo file, this writes every row once, needs no
flush in `commit` and takes changes as a stream; the price is up to three slots per client, and one per row of the
round. Headers lie together, so that opening the file reads 64 bytes per client in large pieces, and no row.

Why it is right. A header has its own checksum, and a header with a wrong checksum is a free slot. A *killed process*
leaves all that it wrote, in order: at worst one row without its header. A *power cut* leaves any part of what was
written since the last `fsync`, in any order: a header may be there without its row. But such rows are of rounds at or
after the last checkpoint, because rows are synced before a checkpoint is written, and `restore` drops them unread. It
erases their headers; otherwise a run that continued differently would find them at a later checkpoint. The next sync
makes that durable before the next checkpoint relies on it, and until then they are dropped again. A row that was staged
and then forgotten is erased in the same way. Freed slots keep their old headers; they do no harm, because a checkpoint
that could find one has a newer row of that client, and `sequence` tells which is newer. A header names the two
checkpoints of its time, so that the file shows at opening what must be kept, and refuses a checkpoint whose rows were
reused. One assumption: a disk sector is written whole or not at all. Later damage of a header is detected by `digest`;
damage of a row by its checksum, when it is read, and when a run resumes, as this reads all rows once (`check`).
"""

from __future__ import annotations

import heapq
import json
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from apiece.storage.row_format import Row, RowFormat, StoreError
from apiece.storage.rows import Rows, Written, refuse_others
from apiece.system import files

NAME = "clients.rows"
START = 4096  # the size of the first block in bytes
GROUP = 1024  # slots whose headers lie together
MAGIC = b"one row\n"
HEADER = struct.Struct("<8s6q")  # magic, the fields of Header; its own checksum follows, padded to HEADER_SIZE
HEADER_SIZE = 64


class Header(NamedTuple):
    """What is known of an unread row; `older` and `newer` were the last two checkpoints when it was written."""

    client: int
    round: int
    sequence: int
    older: int
    newer: int
    crc: int

    def pack(self) -> bytes:
        body = HEADER.pack(MAGIC, *self)
        return (body + zlib.crc32(body).to_bytes(4, "little")).ljust(HEADER_SIZE, b"\0")

    @classmethod
    def unpack(cls, data: bytes) -> Header | None:
        """The header, or `None` if there is none or a torn one."""
        body, crc = data[: HEADER.size], data[HEADER.size : HEADER.size + 4]
        if not data.startswith(MAGIC) or zlib.crc32(body).to_bytes(4, "little") != crc:
            return None
        return cls(*HEADER.unpack(body)[1:])


class DiskRows(Rows):
    """Rows in `folder/clients.rows`, of one run; disk and memory hold only the clients that have a row.

    An existing file is opened for reading the newest rows, counted or not; before anything is written, `restore` it
    (`restore(0)`: to nothing). Raises `StoreError` for a file of another run or layout, or a file that holds no rows.
    """

    def __init__(self, folder: str | Path, layout: RowFormat, run: str) -> None:
        super().__init__(layout)
        self._file = _open(Path(folder) / NAME, layout, run)
        self._slots, self._free, self._sequence = 0, [], 0
        found = self._scan()
        self._adopt(found)
        self._writable = not found

    def stage(self, round: int, client: int, row: Row) -> None:
        if not self._writable:
            raise StoreError(f"{self}: holds rows of an earlier start; resume that run, or begin in an empty folder.")
        super().stage(round, client, row)

    def _write(self, client: int, round: int, crc: int, payload: bytes) -> int:
        slot = self._free[0] if self._free else self._slots
        self._put(slot, client, round, crc, payload)
        if self._free:
            heapq.heappop(self._free)
        else:
            self._slots += 1
        return slot

    def _put(self, slot: int, client: int, round: int, crc: int, payload: bytes) -> None:
        header = Header(client, round, self._sequence, self._older, self._newer, crc)
        files.pwrite(self._file, payload, self._row_at(slot))
        files.pwrite(self._file, header.pack(), self._header_at(slot))
        self._sequence += 1

    def _read(self, place: int) -> bytes:
        if self._file.descriptor >= 0:
            return files.pread(self._file, self.layout.size, self._row_at(place))
        file = files.open_existing(self._file.path)  # the run has ended
        try:
            return files.pread(file, self.layout.size, self._row_at(place))
        finally:
            files.close(file)

    def expect(self, clients: Iterable[int]) -> None:
        for written in (self._records[client][-1] for client in clients if client in self._records):
            files.will_read(self._file, self.layout.size, self._row_at(written.place))

    def _release(self, place: int) -> None:
        heapq.heappush(self._free, place)

    def _erase(self, place: int) -> None:
        self._clear(place)
        self._release(place)

    def _clear(self, place: int) -> None:
        files.pwrite(self._file, bytes(HEADER_SIZE), self._header_at(place))

    def sync(self) -> None:
        try:
            files.fsync(self._file)
        except Exception:
            self.close()  # what was lost is unknown, and a second fsync would not report it
            raise

    def check(self, number: int, digest: str | None = None) -> None:
        _, kept = self._of(number, digest)
        newest = {header.client: _written(slot, header) for slot, header in kept.items()}
        for client, written in sorted(newest.items(), key=lambda item: item[1].place):  # in the order of the file
            self._whole(client, written)

    def _of(self, number: int, digest: str | None) -> tuple[dict[int, Header], dict[int, Header]]:
        """(all headers, those of checkpoint `number`), by slot; `StoreError` if its rows are not here."""
        found = self._scan()
        if (oldest := max((header.older for header in found.values()), default=0)) > number:
            raise StoreError(
                f"{self}: the rows of checkpoint {number} were reused; only those from checkpoint {oldest} on are here."
            )
        kept = {slot: header for slot, header in found.items() if header.round < number}
        newest = {header.client: _written(slot, header) for slot, header in kept.items()}
        refuse_others(newest, number, digest, str(self))
        return found, kept

    def restore(self, number: int, digest: str | None = None) -> None:
        found, kept = self._of(number, digest)
        for slot in found.keys() - kept.keys():
            self._clear(slot)
        self._older = max((header.newer for header in kept.values()), default=0)
        self._newer = number
        self._adopt(kept)
        self._writable = True

    def _adopt(self, found: dict[int, Header]) -> None:
        """Take these headers, in the order written, as all that there is: every other slot is free."""
        self._records, self._staged = {}, {}
        for slot, header in found.items():
            self._records.setdefault(header.client, []).append(_written(slot, header))
        self._slots = max(found, default=-1) + 1
        for client in self._records:
            self._trim(client)
        used = {written.place for records in self._records.values() for written in records}
        self._free = [slot for slot in range(self._slots) if slot not in used]

    def _scan(self) -> dict[int, Header]:
        """Slot and header of every whole header, in the order written; sets the number of the next header."""
        found: dict[int, Header] = {}
        first = 0
        while data := files.pread(self._file, GROUP * HEADER_SIZE, self._header_at(first)):
            for index in range(len(data) // HEADER_SIZE):
                if header := Header.unpack(data[index * HEADER_SIZE : (index + 1) * HEADER_SIZE]):
                    found[first + index] = header
            first += GROUP
        self._sequence = max((header.sequence for header in found.values()), default=-1) + 1
        return dict(sorted(found.items(), key=lambda item: item[1].sequence))

    def _header_at(self, slot: int) -> int:
        group, index = divmod(slot, GROUP)
        return START + group * GROUP * (HEADER_SIZE + self.layout.size) + index * HEADER_SIZE

    def _row_at(self, slot: int) -> int:
        group, index = divmod(slot, GROUP)
        return self._header_at(group * GROUP) + GROUP * HEADER_SIZE + index * self.layout.size

    def close(self) -> None:
        if self._file.descriptor >= 0:
            files.close(self._file)
            self._file = self._file._replace(descriptor=-1)

    def __str__(self) -> str:
        return str(self._file.path)


def _written(slot: int, header: Header) -> Written:
    return Written(header.round, header.crc, slot)


def _open(path: Path, layout: RowFormat, run: str) -> files.Handle:
    """Open the file, or make it with its first block alone; `StoreError` if it is another run's."""
    mine = {"format": "rows 1", "run": run, "layout": layout.hash}
    files.make_folder(path.parent)
    if not path.exists():
        block = json.dumps(mine).encode()
        assert len(block) <= START, "a run's digest is short"
        files.atomic_write(path, block.ljust(START))
    files.sync_folder(path.parent)  # an existing file may be of a process that died before the flush
    file = files.open_existing(path)
    try:
        try:
            found = json.loads(files.pread(file, START, 0))
        except ValueError:
            found = None
        if not isinstance(found, dict) or not set(mine.values()) & {"rows 1"} <= set(map(str, found.values())):
            raise StoreError(f"{path}: is no file of rows, or its first block is damaged; begin in an empty folder.")
        if found["run"] != run:
            raise StoreError(f"{path}: belongs to run {found['run']}, not to {run}; begin in an empty folder.")
        if found["layout"] != mine["layout"]:
            raise StoreError(f"{path}: its rows are laid out otherwise than {layout}; begin in an empty folder.")
    except BaseException:
        files.close(file)
        raise
    return file
