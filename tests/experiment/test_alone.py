"""One process at a time is at work on a run's folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from apiece import UserError
from apiece.experiment.folders import LOCK, alone

HOLD = f"""
import sys
from filelock import FileLock

held = FileLock(sys.argv[1] + "/{LOCK}")
held.acquire()
print(1, flush=True)
input()
"""


def test_a_second_is_refused_and_nothing_remains(tmp_path):
    with alone(tmp_path):
        with pytest.raises(UserError, match="another process is at work"), alone(tmp_path):
            pass
    with alone(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_a_dead_process_holds_nothing(tmp_path):
    words = [sys.executable, "-c", HOLD, tmp_path]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "1\n"
        with pytest.raises(UserError, match="another process is at work"), alone(tmp_path):
            pass
        other.kill()
    assert (tmp_path / LOCK).exists()  # which the dead process left
    with alone(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_a_folder_that_can_only_be_read_is_held_by_nobody(tmp_path, monkeypatch):
    """As the root of tests may write anywhere, the refusal is the system's own, made here."""
    real = os.open

    def refused(path, *rest, **named):
        if Path(os.fsdecode(path)).name == LOCK:
            raise PermissionError(13, "Permission denied", path)
        return real(path, *rest, **named)

    monkeypatch.setattr(os, "open", refused)
    with alone(tmp_path):
        assert not list(tmp_path.iterdir())
