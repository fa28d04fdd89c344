"""A folder that is removed when its process ends, however that happens."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

WAIT = 'cat; for _ in 1 2 3 4 5 6 7 8 9; do rm -rf "$0" && exit; sleep 1; done'  # a client may still be writing


class TemporaryFolder:
    """A new folder of this process alone.

    A shell waits at the end of a pipe, which the system closes even if the process is killed, and then removes the
    folder. The shell has its own session, so that signals of the terminal do not end it.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="apiece-"))
        command = ["/bin/sh", "-c", WAIT, str(self.path)]
        self._watcher = Popen(command, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True)

    def remove(self) -> None:
        """Remove it now."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._watcher.kill()
        self._watcher.communicate()
