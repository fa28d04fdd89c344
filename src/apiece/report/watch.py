"""The report of runs that go on, as a page of this machine alone that follows them: `apiece watch`.

The page is made when a browser asks for it and something in the folders has changed since. Making it takes a tenth of
the time, so that it does not slow the runs down; but a slow machine, too, shows news after half a minute.
"""

from __future__ import annotations

import errno
import hashlib
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from apiece.errors import UserError
from apiece.report.page import EVERY, page_of, template
from apiece.report.results import NotBegun, read_runs

HERE = "127.0.0.1"
CHANGING = ("metrics.jsonl", "run.toml", "clients.json", "grid.json")  # what a page is made of
REST = 9  # times as long as a page took, no other is made
LONGEST = 20.0  # seconds: or else no other is made for so long


class Made(NamedTuple):
    """A page, the state of the folders of which it was made, and when the next may be made."""

    stamp: str
    text: str
    due: float


class Watch:
    """The newest page of some folders."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = folders
        self._lock = threading.Lock()
        self._made = Made("", "", 0.0)

    def newest(self) -> Made:
        """The page; made anew if a folder has changed, and if the last one was not made just now."""
        with self._lock:
            begun = time.monotonic()
            if begun >= self._made.due and (stamp := stamp_of(self.folders)) != self._made.stamp:
                text = live_page(self.folders, stamp)
                done = time.monotonic()
                self._made = Made(stamp, text, done + min(REST * (done - begun), LONGEST))
            return self._made


def serve(folders: Sequence[str | Path], port: int) -> None:
    """Serve the page of run folders to this machine until Ctrl-C.

    UserError if a folder holds no run, or if the port cannot be had.
    """
    watch = Watch(watched(folders))
    try:
        server = server_of(watch, port)
    except OverflowError:
        raise UserError(f"port={port} must lie between 0 and 65535; 0 takes any that is free.") from None
    except OSError as error:
        taken = (
            "is taken by another program" if error.errno == errno.EADDRINUSE else f"cannot be had ({error.strerror})"
        )
        raise UserError(f"Port {port} {taken}: name another one with --port, or 0 for any that is free.") from None
    with server:
        print(f"the report follows at http://{HERE}:{server.server_port}/ until Ctrl-C", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt as stop:
            stop.args = ("the page has ended, and the runs go on",)
            raise


def watched(folders: Sequence[str | Path]) -> list[Path]:
    """The folders that hold runs, also runs without a finished round; a file among folders, as a report, is left out.
    UserError if another holds none.
    """
    paths = [Path(folder) for folder in folders]
    for path in paths:
        if not path.exists():
            raise UserError(f"{path} does not exist: name a run folder, or a folder of runs.")
        if path.is_dir() and not any(path.rglob("run.toml")):
            raise UserError(f"{path} holds no run: name a folder that `apiece run` wrote, once the run has begun.")
    if not (found := [path for path in paths if path.is_dir()]):
        raise UserError("No folder was named: name a run folder, or a folder of runs.")
    return found


def stamp_of(folders: Sequence[Path]) -> str:
    """What changes whenever a file of which the page is made does."""
    found = []
    for path in sorted(p for folder in folders for name in CHANGING for p in folder.rglob(name)):
        try:
            found.append(f"{path} {path.stat().st_mtime_ns} {path.stat().st_size}")
        except FileNotFoundError:  # replaced just now
            continue
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:16] if found else "nothing"


def live_page(folders: Sequence[Path], stamp: str) -> str:
    """The report of the folders that have a finished round, or a page that says what it waits for."""
    try:
        begun = [folder for folder in folders if _has_begun(folder)]
        if begun:
            return page_of(begun, live=stamp)
        said = "No run has finished a round yet. This page looks for one every few seconds."
    except (UserError, OSError) as problem:  # a file that cannot be read now may be whole soon
        said = str(problem)
    return template("waiting.html", said=said, every=EVERY)


def server_of(watch: Watch, port: int) -> ThreadingHTTPServer:
    """A server on this machine's own address that gives the page, and its stamp by which a page looks for news."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 30

        def do_GET(self) -> None:
            allowed = {f"{host}:{self.server.server_port}" for host in (HERE, "localhost")}  # type: ignore[attr-defined]
            if self.headers.get("Host") not in allowed:  # another site's name that leads here
                return self.send_error(403)
            if self.path.partition("?")[0] not in ("/", "/stamp"):
                return self.send_error(404)
            made = watch.newest()
            kind, text = ("plain", made.stamp) if self.path.startswith("/stamp") else ("html", made.text)
            body = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", f"text/{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not worth a line."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A browser that went away is no news."""

    return Server((HERE, port), Handler)


def _has_begun(folder: Path) -> bool:
    try:
        return bool(read_runs(folder))
    except NotBegun:
        return False
