"""What clients remember, row by row: which rows must be kept, and rows kept in memory.

A row written in round t belongs to every checkpoint numbered above t (a checkpoint's number is the rounds done). A row
is not overwritten while it may still be needed: for each client, the newest row and the newest row of each of the last
two checkpoints. So there are at most three, and one that is staged: written, but not yet counted.

The run's side of it:

    rows.restore(n, digest)              once, when a run resumes from checkpoint n (0: from nothing)
    row = rows.get(client)               a fresh copy, or None for a client without a row
    rows.commit(t, changes)              after each round; or before it rows.unstage(), then rows.stage(t, client, row)
                                         as the rows come, and rows.commit_staged() when they count
    rows.sync(); write checkpoint t + 1 with rows.digest() in it; rows.checkpoint(t + 1)
"""

from __future__ import annotations

import hashlib
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from apiece.storage.row_format import Row, RowFormat, StoreError


class Written(NamedTuple):
    """A row as it was written: when, its checksum, and its place (the bytes themselves, or a slot)."""

    round: int
    crc: int
    place: Any


class Rows(ABC):
    """The rows of all clients, and which of them may be forgotten; the two subclasses decide where their bytes lie."""

    def __init__(self, layout: RowFormat) -> None:
        self.layout = layout
        self._records: dict[int, list[Written]] = {}  # of each client with a row, in the order written
        self._staged: dict[int, Written] = {}  # written, and not yet counted
        self._older = self._newer = 0  # the numbers of the last two checkpoints
        self.names: Sequence[str] = ()  # of the clients, for messages

    @abstractmethod
    def _write(self, client: int, round: int, crc: int, payload: bytes) -> Any:
        """Write the bytes to a place that is not needed, and return that place."""

    @abstractmethod
    def _read(self, place: Any) -> bytes: ...

    @abstractmethod
    def _release(self, place: Any) -> None:
        """This place may be used again."""

    @abstractmethod
    def _erase(self, place: Any) -> None:
        """This place may be used again, and its content, which never counted, must not be found again."""

    @abstractmethod
    def restore(self, number: int, digest: str | None = None) -> None:
        """Return the rows to what they were at checkpoint `number`, one of the last two; later ones are dropped.

        `digest`: the value of `digest()` then. Raises `StoreError`, and changes nothing, if those rows are not here.
        """

    def check(self, number: int, digest: str | None = None) -> None:
        """Raise `StoreError` unless all rows of that checkpoint are here and whole: every row on disk is read."""
        return

    @abstractmethod
    def sync(self) -> None:
        """Return when every row committed so far is on the disk: called before the server's checkpoint is written."""

    @abstractmethod
    def close(self) -> None:
        """Close what the rows hold open."""

    def get(self, client: int) -> Row | None:
        """A fresh copy of the client's row, `None` if it has none; `StoreError` if the row is damaged."""
        if client not in self._records:
            return None
        try:
            return self.layout.unpack(self._whole(client, self._records[client][-1]))
        except StoreError as error:
            raise StoreError(
                f"{str(error).rstrip('.')}: `apiece resume` continues from the last checkpoint whose rows are whole."
            ) from None

    def _whole(self, client: int, written: Written) -> bytes:
        """The row's bytes; `StoreError` if they are not those that were written."""
        payload = self._read(written.place)
        if self._damaged(payload, written):
            name = repr(self.names[client]) if client < len(self.names) else str(client)
            raise StoreError(
                f"{self}: the row of client {name}, written in round {written.round + 1}, is damaged (its checksum "
                "differs)."
            )
        return payload

    def _damaged(self, payload: bytes, written: Written) -> bool:
        return len(payload) != self.layout.size or zlib.crc32(payload) != written.crc

    def expect(self, clients: Iterable[int]) -> None:
        """Announce that the rows of these clients will be read soon, so that remote ones can be fetched meanwhile."""
        return

    def stage(self, round: int, client: int, row: Row) -> None:
        """Write a row that counts once the round is committed; forget any of this client, or of another round."""
        assert round >= self._newer, f"round {round} is already in checkpoint {self._newer}"
        if any(written.round != round for written in islice(self._staged.values(), 1)):
            self.unstage()
        if client in self._staged:
            self._erase(self._staged.pop(client).place)
        payload = self.layout.pack(row)
        crc = zlib.crc32(payload)
        self._staged[client] = Written(round, crc, self._write(client, round, crc, payload))

    def unstage(self) -> None:
        """Forget the rows staged and not committed: their round was abandoned, or will be repeated."""
        while self._staged:
            self._erase(self._staged.popitem()[1].place)

    def commit_staged(self) -> None:
        """From now on the staged rows are the clients' rows."""
        for client, written in self._staged.items():
            self._records.setdefault(client, []).append(written)
            self._trim(client)
        self._staged.clear()

    def commit(self, round: int, changes: Iterable[tuple[int, Row]]) -> None:
        """Write the rows that the round changed, one by one as they come: all of them count, or after an error none."""
        self.unstage()
        try:
            for client, row in changes:
                self.stage(round, client, row)
                del row  # before the next one is made
        except Exception:
            self.unstage()
            raise
        self.commit_staged()

    def checkpoint(self, number: int) -> None:
        """Note that the server's checkpoint `number` is on the disk: rows from before the previous one may go."""
        assert number >= self._newer, f"checkpoint {number} after checkpoint {self._newer}"
        if number > self._newer:
            self._older, self._newer = self._newer, number
            for client in self._records:
                self._trim(client)

    def _trim(self, client: int) -> None:
        """Forget the rows of a client that neither the present nor the last two checkpoints need."""
        records = self._records[client]
        if len(records) > 1:
            kept = sorted({_before(records, self._older), _before(records, self._newer), len(records) - 1} - {-1})
            for index, written in enumerate(records):
                if index not in kept:
                    self._release(written.place)
            self._records[client] = [records[index] for index in kept]

    def last_round(self, client: int) -> int:
        """The round in which the client's row was last written, -1 if never."""
        return self._records[client][-1].round if client in self._records else -1

    def touched(self) -> list[int]:
        """The clients that have a row, in order."""
        return sorted(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def digest(self) -> str:
        """A hash of all rows as they are now: clients, rounds and checksums; the same in memory and on disk."""
        return _digest({client: records[-1] for client, records in self._records.items()})


def _before(records: list[Written], number: int) -> int:
    """The index of the newest row of checkpoint `number`, -1 for none."""
    return next((index for index in reversed(range(len(records))) if records[index].round < number), -1)


def _digest(newest: Mapping[int, Written]) -> str:
    table = [(client, newest[client].round, newest[client].crc) for client in sorted(newest)]
    return hashlib.sha256(np.array(table, "<i8").tobytes()).hexdigest()


def refuse_others(newest: Mapping[int, Written], number: int, digest: str | None, name: str) -> None:
    """Raise `StoreError` unless these rows are the ones that the checkpoint was written with."""
    if digest is not None and _digest(newest) != digest:
        raise StoreError(
            f"{name}: its rows are not those that checkpoint {number} was written with (some were lost, damaged or "
            "replaced)."
        )


class MemoryRows(Rows):
    """Rows in memory: gone with the process, so a run that must be resumable needs `DiskRows`."""

    def _write(self, client: int, round: int, crc: int, payload: bytes) -> bytes:
        return payload

    def _read(self, place: bytes) -> bytes:
        return place

    def _damaged(self, payload: bytes, written: Written) -> bool:
        return False  # no other process can write there

    def _release(self, place: bytes) -> None:
        pass

    def _erase(self, place: bytes) -> None:
        pass

    def sync(self) -> None:
        """Do nothing: there is no disk."""

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def restore(self, number: int, digest: str | None = None) -> None:
        if number not in (self._older, self._newer):
            raise StoreError(
                f"{self}: has no rows of checkpoint {number}, only of {self._older} and {self._newer}; "
                "keep the rows on disk to resume a run in another process."
            )
        records = {c: kept for c, all in self._records.items() if (kept := [w for w in all if w.round < number])}
        refuse_others({client: kept[-1] for client, kept in records.items()}, number, digest, str(self))
        self._staged.clear()
        self._records, self._older, self._newer = records, min(self._older, number), number

    def __str__(self) -> str:
        return "rows in memory"
