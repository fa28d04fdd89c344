"""The doorway between Flower's process of a message, which is new each time, and the node, which stays: a socket of the
node's own folder, through which frames pass as bytes. So torch, the data and the model are loaded once.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

from apiece.errors import UserError

NAME = "node.socket"


def opened(state: Path, answer: Callable[[bytes], bytes]) -> threading.Thread:
    """Answer frames that come through the folder's doorway, one after the other, as long as this process lives."""
    os.chmod(state, 0o700)  # nobody else may speak to the node
    path = place(state)
    path.unlink(missing_ok=True)
    listener = Listener(str(path), family="AF_UNIX")

    def serve() -> None:
        while True:
            try:
                with suppress(EOFError, OSError), listener.accept() as connection:
                    connection.send_bytes(answer(connection.recv_bytes()))
            except Exception:  # no request closes the doorway: the next may be sound
                traceback.print_exc()

    thread = threading.Thread(target=serve, name="doorway", daemon=True)
    thread.start()
    return thread


def asked(state: Path, frame: bytes) -> bytes | None:
    """The node's answer to a frame; None if the folder has no doorway. Raises OSError or EOFError if nobody answers."""
    path = place(state)
    if not path.exists():
        return None
    connection: Connection = Client(str(path), family="AF_UNIX")  # type: ignore[assignment]
    with connection:
        connection.send_bytes(frame)
        return connection.recv_bytes()


def place(state: Path) -> Path:
    """The doorway of a folder. A system takes short names alone, so that of a deep folder lies elsewhere."""
    path = state.absolute() / NAME
    if len(str(path)) < 100:
        return path
    word = hashlib.sha256(str(path).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"apiece-{os.getuid()}-{word}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o077:
        raise UserError(f"{folder} is open to others: remove it, and join again.")
    return folder / NAME
