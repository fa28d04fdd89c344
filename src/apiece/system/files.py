"""The disk: the few operations from which everything durable is made, and the atomic write.

A crash may come between any two operations or in the middle of one; after a power cut only what precedes the last
`fsync` of a file (`sync_folder` for names) is certain. The tests put a crash at each operation.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from apiece.errors import UserError, meant, said


class Handle(NamedTuple):
    """An open file and its name for messages."""

    descriptor: int
    path: Path


@contextmanager
def _plainly(done: str, path: Path, needed: int = 0) -> Iterator[None]:
    """Report in one sentence what the system refused: the file, the operation, the room that was needed."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(path.parent).free
            raise UserError(
                f"{path}: the disk is full: {needed:,} bytes were needed and {free:,} are free; "
                "make room and resume; what was there before is unharmed."
            ) from error
        raise UserError(f"{path}: could not be {done}: {error.strerror or error}.") from error


def create(path: Path, mode: int = 0o666) -> Handle:
    """Open an empty file of that name, in place of any earlier one; `mode`: who may do what, less the umask."""
    with _plainly("created", path):
        if mode != 0o666:  # an earlier file would keep its own mode
            path.unlink(missing_ok=True)
        return Handle(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode), path)


def open_existing(path: Path) -> Handle:
    """Open a file for reading and writing in place."""
    with _plainly("opened", path):
        return Handle(os.open(path, os.O_RDWR | os.O_CLOEXEC), path)


def close(file: Handle) -> None:
    """Close without promising that anything reached the disk."""
    with _plainly("closed", file.path):
        os.close(file.descriptor)


def pread(file: Handle, size: int, offset: int) -> bytes:
    """Read `size` bytes at `offset`; fewer only at the end of the file."""
    with _plainly("read", file.path):
        data = os.pread(file.descriptor, size, offset)
        while len(data) < size and (more := os.pread(file.descriptor, size - len(data), offset + len(data))):
            data += more
        return data


def will_read(file: Handle, size: int, offset: int) -> None:
    """Let the system fetch these bytes in the background; does nothing if the system has no such call."""
    if advise := getattr(os, "posix_fadvise", None):
        advise(file.descriptor, offset, size, os.POSIX_FADV_WILLNEED)


def pwrite(file: Handle, data: bytes, offset: int) -> None:
    """Write all of `data` at `offset`."""
    with _plainly("written", file.path, len(data)):
        rest = memoryview(data)
        while rest:
            count = os.pwrite(file.descriptor, rest, offset)
            rest, offset = rest[count:], offset + count


def fsync(file: Handle) -> None:
    """Return when the file's content is on the disk."""
    with _plainly("flushed to the disk", file.path):
        os.fsync(file.descriptor)


def replace(source: Path, target: Path) -> None:
    """Rename the file, atomically, in place of any file of the new name."""
    with _plainly("renamed", source):
        os.replace(source, target)


def remove(path: Path) -> None:
    """Remove a file."""
    with _plainly("removed", path):
        os.unlink(path)


def sync_folder(folder: Path) -> None:
    """Return when the folder's names (created, renamed, removed) are on the disk, if the system can say so."""
    with _plainly("flushed to the disk", folder):
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except PermissionError:  # a folder above ours that may be passed but not read
            return
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a file system that has no such flush
                raise
        finally:
            os.close(descriptor)


def make(folder: Path) -> None:
    """Make one folder."""
    with _plainly("made", folder):
        os.makedirs(folder, exist_ok=True)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it durable: an existing one may be of a process that died before the flush."""
    if not folder.is_dir():
        make_folder(folder.parent)
        make(folder)
    sync_folder(folder.parent)


def atomic_write(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file so that after a crash at any moment either the old or the new file is there, whole.

    `mode`: who may do what with the file, less the umask. Raises `UserError` if the disk refuses (full: how much was
    needed and is free); the old file then stays, as it does after Ctrl-C.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a file.")
    half = path.with_name(path.name + ".tmp")
    try:
        file = create(half, mode)
        try:
            pwrite(file, data, 0)
            fsync(file)
        finally:
            close(file)
        replace(half, path)
    except (UserError, KeyboardInterrupt):
        with suppress(OSError):
            half.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def unwritable(folder: Path) -> str:
    """Why no file can be made in a folder; "" if one can."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def read_toml(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file; raises UserError if it cannot be read."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        do = f"{meant(path)}give the path of a TOML file"
        raise UserError(f"{path} cannot be read ({error.strerror}): {do}.") from None
    except ValueError as error:  # not TOML, no UTF-8, a number of too many digits, an impossible path
        raise UserError(f"{repr(str(path))[1:-1]} is no TOML file: {said(error).partition('; use sys.')[0]}.") from None
    except RecursionError:
        raise UserError(f"{path} is no file of settings: its brackets are nested thousands deep.") from None
