"""`apiece serve`: the coordinator's side of Flower, kept running, and its runs, submitted until they end."""

from __future__ import annotations

import datetime as dt
import json
import shlex
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from apiece.consortium.admission import admitted
from apiece.consortium.certificates import checked, warned
from apiece.consortium.folder import address
from apiece.consortium.keys import fingerprint
from apiece.deploy import flower_commands as flower
from apiece.deploy.flower_commands import Connection
from apiece.deploy.request import FOLDER, Request, requests
from apiece.deploy.supervise import GRACE, Kept, kept
from apiece.errors import UserError
from apiece.system import files

LOOK, LISTED = 0.5, 5.0  # seconds: between looks, and between looks at who is admitted
SUBMITTED, AT_ONCE = 90.0, 3.0  # seconds until a run is submitted again that has not begun, and one that has
ROOM = 1 << 20  # bytes that a server must be able to write
HERE = "serve.json"  # in a coordinator's folder: how its commands reach it


@dataclass
class Coordinator:
    """What `apiece serve` keeps running, with the state of one folder."""

    consortium: Path
    state: Path
    host: str
    port: int
    say: Callable[[str], None]
    known: dict[str, str] = field(default_factory=dict)  # name -> public key, registered
    submitted: dict[str, float] = field(default_factory=dict)
    listed: float = 0.0
    full: bool = False
    noted: dict[str, str] = field(default_factory=dict)  # kind -> the sentence that was said last

    def __post_init__(self) -> None:
        if not 0 < self.port < 65536:
            raise UserError(f"--port {self.port} must be from 1 to 65535.")

    @property
    def connection(self) -> Connection:
        return Connection(self.state / "flower", self.port, self.consortium / "ca.crt")

    def prepare(self) -> list[Kept]:
        """Make the folder, and the processes that will be kept running; raises UserError for certificates that nodes
        would refuse.
        """
        self._look_at_certificates()
        files.make_folder(self.state / FOLDER)
        flower.secret(self.state)
        self.connection.write()
        server, ca = self.consortium / "server", self.consortium / "ca.crt"
        files.atomic_write(self.state / HERE, json.dumps({"port": self.port, "ca": str(ca)}).encode())
        link = flower.superlink(
            self.port, self.host, ca, server / "server.pem", server / "server.key", self.state
        )
        env = flower.environment(self.connection.home)
        executor = flower.superexec(self.connection, self.state)
        log = self.state / "log"
        files.make_folder(log)
        return [
            Kept("the SuperLink", link, env, log / "superlink.log", self.say),
            Kept("the SuperExec", executor, env, log / "superexec.log", self.say),
        ]

    def serve(self, until: Callable[[], bool]) -> None:
        """Keep everything running until `until` says so; raises UserError if another program has the port."""
        link, executor = processes = self.prepare()
        self._refuse_taken(time.monotonic() + GRACE)
        ready = False
        with kept(processes):
            while not until():
                link.look()
                if link.runs and self.connection.answers():
                    if not ready:
                        self.say(f"ready: nodes join at port {self.port}, and `apiece deploy run` begins a run.")
                        ready = True
                    executor.look()
                    self._goes_on()
                time.sleep(LOOK)

    def _refuse_taken(self, until: float) -> None:
        """Wait until then for the port: the server of a process before this one may be about to end."""
        while self.connection.answers():
            if time.monotonic() > until:
                raise UserError(f"another program has the port {self.port}: end it, or give another --port.")
            time.sleep(LOOK)

    def _goes_on(self) -> None:
        """Register who was admitted, and submit the runs that have not ended and that nobody runs."""
        self._look_for_room()
        if self.full:
            return
        try:
            if time.monotonic() - self.listed > LISTED:
                self._look_at_certificates()
                self._admit()
                self.listed = time.monotonic()
            for request in requests(self.state):
                last = self.submitted.get(request.name, -SUBMITTED)
                if request.due() and not running(request):
                    if time.monotonic() - last > (AT_ONCE if request.begun() else SUBMITTED):
                        self._submit(request)
            self._note("trouble", "")
        except UserError as error:
            self._note("trouble", str(error))

    def _look_at_certificates(self) -> None:
        """Say that one ends soon; raises UserError for those that nodes would refuse."""
        now = dt.datetime.now(dt.UTC)
        validity = checked(self.consortium, address(self.consortium).host, now)
        ends = warned(self.consortium, validity, now)
        self._note("end", f"{ends}." if ends else "")

    def _note(self, kind: str, sentence: str) -> None:
        """Say a sentence, unless it is the one of its kind that was said last."""
        if sentence and sentence != self.noted.get(kind):
            self.say(sentence)
        self.noted[kind] = sentence

    def _look_for_room(self) -> None:
        """Say when the disk becomes full, on which Flower can do nothing then, and when there is room again."""
        free = shutil.disk_usage(self.state).free
        if self.full != (free < ROOM):
            self.full = not self.full
            full = f"the disk is full, with {free:,} bytes free: make room; until then no round is done, nor lost"
            self.say(f"{self.state}: {full if self.full else 'there is room again, and runs go on'}.")

    def _submit(self, request: Request) -> None:
        """Submit a run, or end it where its folder is out of reach."""
        self.submitted[request.name] = time.monotonic() - SUBMITTED + LISTED  # if this fails, it is tried again soon
        request.clear_begun()
        try:
            request.refuse_out_of_reach()
        except UserError as error:
            request.end(f"failed: {error}")
            return self.say(f"run {request.name!r} is not begun: {error}")
        number = flower.submit(self.connection, request.path)
        self.submitted[request.name] = time.monotonic()
        self.say(f"run {request.name!r} is submitted, as Flower's run {number}.")

    def _admit(self) -> None:
        """Make the registered keys those of the consortium's list."""
        wanted = {node.name: node.public_key for node in admitted(self.consortium)}
        if wanted == self.known:
            return
        there = flower.registered(self.connection)
        for node in there:
            if wanted.get(node.name) != node.public_key:
                flower.unregister(node.number, self.connection)
                self.say(f"node {node.name!r} is let in no longer with the key {fingerprint(node.public_key)}.")
        files.make_folder(self.state / "keys")
        for name, key in wanted.items():
            if (name, key) not in {node[:2] for node in there}:
                files.atomic_write(self.state / "keys" / f"{name}.pub", f"{key}\n".encode())
                flower.register(self.state / "keys" / f"{name}.pub", name, self.connection)
                self.say(f"node {name!r} is let in.")
        self.known = wanted


def running(request: Request) -> bool:
    """Whether a process is at work on a request."""
    lock = FileLock(request.lock, timeout=0)
    try:
        with lock:
            return False
    except Timeout:
        return True


def reached(state: Path) -> Connection:
    """How to reach the coordinator of a folder; raises UserError if there is none."""
    try:
        table = json.loads((state / HERE).read_bytes())
        return Connection(state / "flower", int(table["port"]), Path(table["ca"]))
    except (OSError, ValueError, TypeError, KeyError):
        raise UserError(f"{state} is no folder of `apiece serve`: begin that first, or give --state.") from None


def tell_if_down(state: Path, say: Callable[[str], None]) -> None:
    """Say how to start the server of a coordinator's folder, unless it answers."""
    connection = reached(state)
    if connection.ca is not None and not connection.answers():
        words = shlex.join(map(str, ("serve", connection.ca.parent, "--state", state, "--port", connection.port)))
        say(f"the server does not run, and what is asked for waits for it: start `apiece {words}`, or its unit.")


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
