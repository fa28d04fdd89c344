"""The processes of wired clients: one starts when a message is to be sent, and stays while few are idle."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from threading import Lock

from apiece.system import processes
from apiece.wired.client import serve

IDLE = 32  # processes that may wait for their client's next message; the one that has waited longest ends first
PRELOAD = (
    "apiece.wired.client",
    "apiece.networks.models",
    "numpy.random",
    "torch",
)  # modules that a new process finds imported


class ClientProcesses:
    """The clients' processes, one per folder: started when a message is to be sent, ended when too many are idle."""

    def __init__(self, text: str, modules: set[str], patience: float = processes.PATIENCE) -> None:
        self.text = text
        self._pool = processes.Pool([*PRELOAD, *sorted(modules)], serve, patience)
        self._idle: OrderedDict[Path, processes.Live] = OrderedDict()
        self._lock = Lock()

    def ask(self, folder: Path, message: bytes) -> bytes | None:
        """A client's answer. If its process ended or was silent, a new one gets the message once more: if that one ends
        too, there is no answer, and if it is silent, processes.Silent is raised.
        """
        try:
            return self._pool.twice(f"the process of client {folder.name!r}", lambda: self._ask(folder, message))
        except processes.Ended:
            return None

    def close(self) -> None:
        """End all processes, also those at work; no more messages are sent."""
        self._pool.close()

    def _ask(self, folder: Path, message: bytes) -> bytes:
        live = self._take(folder)
        with self._pool.speaking(live):
            live.pipe.send_bytes(message)
            answer = live.pipe.recv_bytes()
        self._give(folder, live)
        return answer

    def _take(self, folder: Path) -> processes.Live:
        with self._lock:
            if folder in self._idle:
                return self._idle.pop(folder)
        return self._pool.begin(self.text, str(folder))

    def _give(self, folder: Path, live: processes.Live) -> None:
        with self._lock:
            self._idle[folder] = live
            most = self._idle.popitem(last=False)[1] if len(self._idle) > IDLE else None
        if most is not None:
            self._pool.end(most)
