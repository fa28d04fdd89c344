"""Rows on one disk that several ranks share: each writes the rows of its own clients, and all know where all rows lie.

Free slots are dealt to ranks from a list that is the same on every rank; after a round the ranks tell each other what
they wrote. Reads go to the file, so all ranks must see the same folder.
"""

from __future__ import annotations

import secrets
from itertools import chain, count, islice
from pathlib import Path

from apiece.errors import UserError
from apiece.storage.disk import DiskRows
from apiece.storage.row_format import RowFormat
from apiece.storage.rows import Written
from apiece.system import files
from apiece.system.ranks import Ranks


class SharedRows(DiskRows):
    """`DiskRows` of several ranks, in a folder that all of them see."""

    def __init__(self, folder: Path, layout: RowFormat, run: str, ranks: Ranks) -> None:
        ranks.first(lambda: DiskRows(folder, layout, run).close())  # one rank makes the file
        self.ranks = ranks
        super().__init__(folder, layout, run)
        ranks.everyone(None)  # every rank has read the file before any writes
        self._deal()

    def _write(self, client: int, round: int, crc: int, payload: bytes) -> int:
        """Write to this rank's next free slot: every `world`-th of the free slots, then of those beyond the last."""
        slot = next(self._dealt)
        self._put(slot, client, round, crc, payload)
        return slot

    def _deal(self) -> None:
        """Deal the free slots, which all ranks know; this rank takes every `world`-th."""
        slots = chain(sorted(self._free), count(self._slots))
        self._dealt = islice(slots, self.ranks.rank, None, self.ranks.world)

    def _erase(self, place: int) -> None:
        """Erase the header; the slot was dealt, and is dealt again after the round."""
        self._clear(place)

    def unstage(self) -> None:
        super().unstage()
        self._deal()

    def commit_staged(self) -> None:
        mine = {client: tuple(written) for client, written in self._staged.items()}
        told = self.ranks.everyone((mine, self._sequence))
        self._staged = {c: Written(*w) for part, _ in told for c, w in sorted(part.items())}
        taken = {written.place for written in self._staged.values()}
        end = max(taken, default=-1) + 1
        free = {*self._free, *range(self._slots, end)} - taken
        self._slots, self._free = max(self._slots, end), sorted(free)  # sorted is a heap
        self._sequence = max(sequence for _, sequence in told)
        super().commit_staged()
        self._deal()

    def restore(self, number: int, digest: str | None = None) -> None:
        self.ranks.everyone(None)  # no rank is still writing
        self.ranks.first(lambda: super(SharedRows, self).restore(number, digest))
        if not self.ranks.leads:
            super().restore(number, digest)  # the rows to drop are dropped already
        self._deal()

    def checkpoint(self, number: int) -> None:
        super().checkpoint(number)
        self._deal()

    def sync(self) -> None:
        super().sync()
        self.ranks.everyone(None)  # a checkpoint relies on the rows of all ranks


def refuse_unshared(folder: Path, ranks: Ranks) -> None:
    """Raise UserError unless the run's folder is the same for all ranks; the test leaves no file behind."""
    if ranks.world == 1:
        return
    there = next(path for path in (folder, *folder.parents) if path.is_dir())  # a refused start creates no folder
    path = ranks.everyone(there / f"shared-{secrets.token_hex(8)}")[0]
    ranks.first(lambda: files.atomic_write(path, b""))
    try:
        with ranks.together():
            if not path.exists():
                raise UserError(
                    f"{str(folder)!r} is not one folder for all ranks: give an --out that every machine shares."
                )
    finally:
        if ranks.leads:
            files.remove(path)
