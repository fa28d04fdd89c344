"""`make hostile`: a deployment on this machine that is attacked, or broken, in one way after the other.

    python tests/hostile.py [--only clock] [--out docs/threat-model.md]

Each attempt must end with one sentence in a log that says who must act, and with a run that goes on as if nothing had
been tried, or as if the node had been absent. The table in the page is written anew. Full disks need root, for a small
file system in memory. The clock is changed in the node's processes alone: their Python reads a moment that is off.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rehearsal import USUAL  # of this folder

from apiece.consortium import folder as consortium
from apiece.consortium import keys, naming
from apiece.deploy import flower_commands as flower
from apiece.deploy import rehearsal
from apiece.deploy.comparing import compared
from apiece.deploy.flower_commands import Connection
from apiece.deploy.rehearsal import Deployment
from apiece.deploy.request import Terms
from apiece.experiment.launch import run_config

NAMES = ["client-0", "client-1", "client-2"]
CULPRIT = "client-0"
PATIENCE = 180.0  # seconds until the sentence must stand in a log
DAY = 86_400
MARKS = "<!-- hostile -->", "<!-- end of hostile -->"
CLOCK = """import datetime, os, time
real, shift = time.time, float(os.environ["SHIFT"])
time.time = lambda: real() + shift
class Shifted(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)
datetime.datetime = Shifted
"""


def sentence(log: Path, words: str, begin: int = 0) -> str:
    """The first sentence of a log that has these words, which must come within a while."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for line in log.read_text(errors="replace")[begin:].splitlines() if log.exists() else ():
            if re.search(words, line):
                return re.sub(r"^(apiece: )?(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d )?", "", line)
        time.sleep(0.3)
    raise SystemExit(f"no sentence in {log} says {words!r}: {log.read_text(errors='replace')[-2000:]}")


def joined(made: Deployment, folder: Path, words: str, server: str = "", **environment: str) -> str:
    """What a log says when a node of that folder joins; it must not be let in."""
    log, state = made.home / f"{len(list(made.home.glob('*.try')))}.try", Path(tempfile.mkdtemp(dir=made.home))
    command = [sys.executable, "-m", "apiece", "join", str(folder), "--data", str(made.home / f"data/{CULPRIT}.npz")]
    command += ["--state", str(state), *(["--server", server] if server else [])]
    with open(log, "ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | environment)
    try:
        said = sentence(log, words)
        link = Connection(made.home / "serve" / "flower", made.port, made.home / "consortium" / "ca.crt")
        assert {node.status for node in flower.registered(link) if node.name == CULPRIT} != {"online"}
        return said
    finally:
        process.terminate()
        process.wait()


def own(made: Deployment) -> Path:
    return made.home / "consortium" / "nodes" / CULPRIT


def with_another(made: Deployment, file: str) -> Path:
    """The culprit's folder with a file of another consortium."""
    if not (other := made.home / "other").exists():
        consortium.make(other, [CULPRIT], naming.server(f"localhost:{made.port}"), rehearsal._now())
        keys.make_key(other / "nodes" / CULPRIT)
    place = Path(tempfile.mkdtemp(dir=made.home)) / CULPRIT
    shutil.copytree(own(made), place)
    shutil.copy(other / "nodes" / CULPRIT / file, place / file)
    return place


def wrong_key(made: Deployment) -> str:
    return joined(made, with_another(made, "node.key"), "must admit its key")


def wrong_authority(made: Deployment) -> str:
    return joined(made, with_another(made, "ca.crt"), "is not trusted")


def other_name(made: Deployment) -> str:
    with passing_on(made.port) as port:
        return joined(made, own(made), "is not trusted", f"127.0.0.2:{port}")


def fast_clock(made: Deployment, shift: int = DAY) -> str:
    place = Path(tempfile.mkdtemp(dir=made.home))
    (place / "sitecustomize.py").write_text(CLOCK)
    path = os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")])
    return joined(made, own(made), "clock is", SHIFT=str(shift), PYTHONPATH=path)


def slow_clock(made: Deployment) -> str:
    return fast_clock(made, -DAY)


def control_port(made: Deployment) -> str:
    home = Path(tempfile.mkdtemp(dir=made.home))
    Connection(home, made.port, made.home / "consortium" / "ca.crt").write()
    config = home / "config.toml"
    config.write_text(config.read_text().replace("127.0.0.1", "127.0.0.2"))  # any address but the server's own
    command = [flower.program("flwr"), "run", str(home / "app"), "apiece", "--format", "json"]
    done = subprocess.run(command, env=flower.environment(home), capture_output=True, text=True, check=False)
    told = " ".join((done.stdout + done.stderr).split())
    assert '"success": false' in told and "unavailable" in told, told
    return "connection refused: the server listens on 127.0.0.1 alone, and the proxy passes on /v1/fleet alone"


def no_secret(made: Deployment) -> str:
    ca, log = str(made.home / "consortium" / "ca.crt"), made.home / "serve" / "log" / "superlink.log"
    command = [flower.program("flower-superexec"), "--runtime-api-address", f"127.0.0.1:{made.port}"]
    began = log.stat().st_size
    process = subprocess.Popen(
        [*command, "--root-certificates", ca], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        told = sentence(log, "authentication failed", began)
        process.wait(timeout=PATIENCE)  # it was given nothing, and ends
        return told[told.index("SuperExec") :]
    finally:
        process.kill()
        process.wait()


def full_disk(made: Deployment, name: str) -> str:
    """A run of four rounds, after whose first round the disk of a node, or of the server, is full for a while."""
    state = made.home / ("serve" if name == "serve" else f"nodes/{name}")
    ended(made, name)
    kept = state.with_suffix(".kept")
    state.rename(kept)
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", str(state)], check=True)
    try:
        shutil.copytree(kept, state, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.socket", "runs"))
        began = (made.home / f"{name}.log").stat().st_size
        made.begin(name)
        sentence(made.home / f"{name}.log", "ready", began)
        return filled(made, name, state)
    finally:
        ended(made, name)
        subprocess.run(["umount", "-l", str(state)], check=True)
        state.rmdir()
        kept.rename(state)
        made.begin(name)


def filled(made: Deployment, name: str, state: Path) -> str:
    """Run, fill the disk, see that it is said, make room, and see that the run is what it must be."""
    config = replace(rehearsal.both(USUAL, 3), algorithm="scaffold", rounds=4)
    word = "serve/full" if name == "serve" else "full"
    log = (made.home / "serve.log").stat().st_size
    request = rehearsal.ask_for(config, made.home, word, Terms(3, 3 if name == "serve" else 2, 60.0))
    folder = made.home / word
    while not (folder / "metrics.jsonl").exists():
        time.sleep(0.2)
    with suppress(OSError), open(state / "filling", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    place, begin = (made.home / "serve.log", log) if name == "serve" else (request.log, 0)
    said = sentence(place, "disk is full", begin)
    (state / "filling").unlink()
    while (end := request.ended()) is None:
        time.sleep(0.2)
    assert end == "done", end
    answered = [json.loads(line)["answered"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    if name == "serve":
        run_config(replace(config, out=str(made.home / "wired")), progress=False)
        assert compared(folder, made.home / "wired") == []
    else:
        assert answered[0] == answered[-1] == 3 and min(answered) == 2, answered
    return said


def ended(made: Deployment, name: str) -> None:
    made.processes[name].terminate()
    made.processes[name].wait()


def full_node(made: Deployment) -> str:
    return full_disk(made, CULPRIT)


def full_server(made: Deployment) -> str:
    return full_disk(made, "serve")


class passing_on:
    """Whoever stands between: passes bytes on between 127.0.0.2 and the server, and cannot read them."""

    def __init__(self, port: int) -> None:
        self.port, self.listening = port, socket.create_server(("127.0.0.2", 0))

    def __enter__(self) -> int:
        threading.Thread(target=self._serve, daemon=True).start()
        return self.listening.getsockname()[1]

    def __exit__(self, *_: object) -> None:
        self.listening.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                one, other = self.listening.accept()[0], socket.create_connection(("127.0.0.1", self.port))
                for a, b in ((one, other), (other, one)):
                    threading.Thread(target=self._pass, args=(a, b), daemon=True).start()

    @staticmethod
    def _pass(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        with suppress(OSError):
            other.shutdown(socket.SHUT_WR)


ATTEMPTS: dict[str, Callable[[Deployment], str]] = {
    "a node with a key that was not admitted": wrong_key,
    "a server whose certificate is of another authority": wrong_authority,
    "a server whose certificate is for another name": other_name,
    "a node whose clock is a day ahead": fast_clock,
    "a node whose clock is a day behind": slow_clock,
    "a program submitted to the control port from another address": control_port,
    "a process of the server's machine that wants its tasks, without the secret": no_secret,
    "a node's disk that is full for a while": full_node,
    "the server's disk that is full for a while": full_server,
}


def main() -> None:
    flags = argparse.ArgumentParser()
    flags.add_argument("--only", default="")
    flags.add_argument("--out", type=Path, default=None)
    given = flags.parse_args()
    with tempfile.TemporaryDirectory(prefix="apiece-hostile-") as folder:
        home = Path(folder)
        names = rehearsal.deal(rehearsal.both(USUAL, 3), home)
        with rehearsal.deployment(home, names, print) as made:
            for what, attempt in ATTEMPTS.items():
                if not re.search(given.only, what):
                    continue
                away = attempt not in (control_port, no_secret, full_node, full_server)
                if away and made.processes[CULPRIT].poll() is None:
                    ended(made, CULPRIT)
                if not away and made.processes[CULPRIT].poll() is not None:
                    made.begin(CULPRIT)
                said = attempt(made).replace(str(home), "FOLDER").replace("|", "/")
                print(f"{what}: {said}", flush=True)
                if given.out is not None:
                    given.out.write_text(with_row(given.out.read_text(), what, said))


def with_row(page: str, what: str, said: str) -> str:
    """The page with the row of this attempt, in the order of all."""
    begin, end = page.index(MARKS[0]) + len(MARKS[0]), page.index(MARKS[1])
    there = [line.strip("| ").split(" | ") for line in page[begin:end].splitlines() if line.startswith("| ")]
    rows = {row[0]: row[1] for row in there} | {what: said}
    table = [f"| {name} | {rows[name]} |" for name in ATTEMPTS if name in rows]
    return page[:begin] + "\n".join(["", "| attempt | the sentence in the log |", "|---|---|", *table, ""]) + page[end:]


if __name__ == "__main__":
    main()
