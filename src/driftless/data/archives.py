"""Reading .npz files that may be anything."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from driftless.errors import UserError


def archive(path: str | Path) -> NpzFile:
    """The open archive; UserError for a file that cannot be read, is torn, or is no archive of plain arrays."""
    try:
        stored = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or "it is torn or of another kind"
        raise UserError(f"{path}: cannot be read as an .npz file: {reason}; write it with numpy.savez.") from error
    if not isinstance(stored, NpzFile):
        raise UserError(f"{path}: holds one array; give an .npz file of named arrays, as numpy.savez writes.")
    return stored
