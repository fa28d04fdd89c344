"""Which memories of wired clients count: the server knows their rounds and checksums, the clients keep them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apiece.storage.row_format import Row, RowFormat
from apiece.storage.rows import Rows, Written
from apiece.wired import client_folder


class WiredRows(Rows):
    """Which memories of each client counted, back to the last two checkpoints; the clients themselves have the rows."""

    def __init__(self, layout: RowFormat, folder: Callable[[int], Path], run: str) -> None:
        super().__init__(layout)
        self._folder, self._run = folder, run

    def get(self, client: int) -> Row | None:
        """The client's own memory, only for measurements."""
        return self._recalled(client, self._records[client][-1]) if client in self._records else None

    def remembered(self, round: int, client: int, checksum: int) -> None:
        """Note that the client has a memory of this round, with this checksum; it does not count yet."""
        self._staged[client] = Written(round, checksum, None)

    def counted(self, client: int) -> dict[str, int]:
        """The part of a header about a client's memories: the last one that counted, and the rounds still needed."""
        records = self._records.get(client, ())
        older, newer = (max((w.round for w in records if w.round < n), default=-1) for n in (self._older, self._newer))
        last = records[-1] if records else Written(-1, 0, None)
        return {"accepted": last.round, "memory": last.crc, "older": older, "newer": newer}

    def digest(self) -> str:
        """The list of memories that counted, itself: the server's only place for it is its checkpoint."""
        counted = {client: [written[:2] for written in self._records[client]] for client in self.touched()}
        return json.dumps({"checkpoints": [self._older, self._newer], "memories": counted})

    def check(self, number: int, digest: str | None = None) -> None:
        for client, made in self._counted(digest)[1].items():
            self._recalled(client, made[-1], "")

    def restore(self, number: int, digest: str | None = None) -> None:
        checkpoints, self._records = self._counted(digest)
        self._staged.clear()
        self._older, self._newer = max((n for n in checkpoints if n < number), default=0), number

    def _counted(self, digest: str | None) -> tuple[list[int], dict[int, list[Written]]]:
        """(the checkpoints, the memories that counted) of a digest; memories without checksums are converted first."""
        saved = json.loads(digest or '{"checkpoints": [], "memories": {}}')
        counted = {int(client): made for client, made in saved.get("memories", saved.get("counted")).items()}
        if "memories" not in saved:
            names, adopt = [field[0] for field in self.layout.fields], client_folder.adopt
            counted = {c: adopt(self._folder(c), self._run, c, rounds, names) for c, rounds in counted.items()}
        records = {client: [Written(round, crc, None) for round, crc in made] for client, made in counted.items()}
        return saved["checkpoints"], records

    def _recalled(self, client: int, made: Written, *advice: str) -> Row:
        return client_folder.recall(self._folder(client), self._run, client, made.round, made.crc, *advice)[1]

    def sync(self) -> None:
        """Do nothing: a client's memory is on its disk before the client answers."""

    def close(self) -> None:
        """Do nothing: no file is open here."""

    def _write(self, client: int, round: int, crc: int, payload: bytes) -> None:
        raise AssertionError("clients write their own rows")

    def _read(self, place: Any) -> bytes:
        raise AssertionError("clients read their own rows")

    def _release(self, place: Any) -> None:
        """Do nothing: the client's next message says which rounds are needed."""

    def _erase(self, place: Any) -> None:
        """The same."""
