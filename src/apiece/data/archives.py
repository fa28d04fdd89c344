"""Reading .npz files that may be damaged, or of another kind."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile

from apiece.errors import UserError

KEYS = ("x_train", "y_train", "x_test", "y_test")  # the arrays of samples and their targets

# What numpy and zipfile raise on damaged bytes: a flipped bit may also ask for encryption or an unknown compression.
_DAMAGED = (OSError, ValueError, EOFError, RuntimeError, SyntaxError, MemoryError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class Archive:
    """An open .npz file: an array is read when it is accessed, and refused in one sentence where it cannot be read."""

    path: str | Path
    stored: NpzFile

    @property
    def files(self) -> list[str]:
        """The names of the arrays."""
        return self.stored.files

    def __getitem__(self, name: str) -> Any:
        try:
            array = self.stored[name]
        except _DAMAGED as error:
            raise UserError(
                f"{self.path}: {name!r} cannot be read: it is damaged, or holds objects, not numbers; write the file "
                "anew with numpy.savez."
            ) from error
        if not isinstance(array, np.ndarray):
            raise UserError(f"{self.path}: {name!r} is no array; write the file with numpy.savez.")
        return array


@contextmanager
def archive(path: str | Path) -> Iterator[Archive]:
    """The open archive; UserError for a file that cannot be read, is damaged, or is no archive of plain arrays."""
    with ExitStack() as opened:
        try:
            stream = opened.enter_context(open(path, "rb"))  # numpy leaves a file open that it cannot read
            stored = np.load(stream, allow_pickle=False)
        except _DAMAGED as error:
            reason = getattr(error, "strerror", None) or "it is damaged or of another kind"
            raise UserError(f"{path}: cannot be read as an .npz file: {reason}; write it with numpy.savez.") from error
        if not isinstance(stored, NpzFile):
            raise UserError(f"{path}: holds one array; give an .npz file of named arrays, as numpy.savez writes.")
        yield Archive(path, opened.enter_context(stored))
