"""A disk that stops a run at any operation, and a power cut that takes what was not flushed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from apiece.system import files

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

    def create(self, path: Path, mode: int = 0o666) -> files.Handle:
        self._step(lambda: None)
        handle, file = self.real["create"](path, mode), object()
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
