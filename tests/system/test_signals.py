"""Signals end a run within five seconds, whatever it is at, with their code, one sentence, and nothing left over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.outer import cli

from apiece.lifts.lift import Threaded
from apiece.system import processes
from apiece.wired.server import WiredClients

pytestmark = pytest.mark.slow

FIVE = 5.0  # seconds
SMALL = "--data digits --clients 4 --cohort 1.0 --batch 8 --model mlp(hidden=[8]) --workers 2".split()
LONG = "--rounds 1 --steps 300000".split()  # a client takes minutes

BEGINNER = """
import json, os, signal, sys
import apiece.experiment.launch, apiece.system.processes, apiece.wired.server
from apiece.cli import main

for line in sys.stdin:
    words, said, folder, ignored = json.loads(line)
    if not (pid := os.fork()):
        os.setsid()
        os.environ["TMPDIR"] = folder
        for stream, path in ((1, os.devnull), (2, said)):
            os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY), stream)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the tests themselves were begun to ignore
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        sys.argv, code = ["apiece", *words], 0
        try:
            main()
        except SystemExit as end:
            code = end.code
        os._exit(code)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Process(NamedTuple):
    """One of a session, as the system knows it."""

    pid: int
    parent: int
    state: str
    command: str


def session(leader: int) -> list[Process]:
    """The processes that have not ended of those that this one leads."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, parent, _, of = (path / "stat").read_text().rpartition(") ")[2].split()[:4]
            command = (path / "cmdline").read_text()
        except OSError:
            continue
        if int(of) == leader and state != "Z":
            found.append(Process(int(path.name), int(parent), state, command))
    return found


def workers(leader: int) -> list[Process]:
    """Those of its processes that were begun by its server of processes."""
    servers = {p.pid for p in session(leader) if p.parent == leader and "forkserver" in p.command}
    return [p for p in session(leader) if p.parent in servers]


def until(holds: Callable[[], Any], seconds: float = 60.0) -> None:
    last = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < last, "this has not come to be"
        time.sleep(0.02)


class Began:
    """A command that runs, the first of a session of its own."""

    def __init__(self, beginner: subprocess.Popen, words: list[str], folder: Path, ignored: tuple[int, ...]) -> None:
        self.beginner, self.said, self.temporary, self.runs = beginner, folder / "said", folder / "temporary", True
        self.temporary.mkdir()
        assert beginner.stdin is not None
        beginner.stdin.write(json.dumps([words, str(self.said), str(self.temporary), ignored]) + "\n")
        beginner.stdin.flush()
        self.pid = self.told()

    def told(self) -> int:
        assert self.beginner.stdout is not None
        return int(self.beginner.stdout.readline())

    def ended(self, number: int, everyone: bool = False) -> tuple[int, str, float]:
        """(exit code, what it said, seconds) after this signal; nothing of it is left."""
        began = time.monotonic()
        (os.killpg if everyone else os.kill)(self.pid, number)
        code, self.runs = self.told(), False
        seconds = time.monotonic() - began
        until(lambda: not session(self.pid))  # the server of processes ends after the last of them
        assert not list(self.temporary.iterdir())
        return code, self.said.read_text(), seconds


@pytest.fixture(scope="module")
def beginner() -> Iterator[subprocess.Popen]:
    """A process that has imported what a run needs, and begins runs."""
    pipe = subprocess.PIPE
    words = [sys.executable, "-c", BEGINNER]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=alone) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def begin(beginner, tmp_path) -> Iterator[Callable[..., Began]]:
    """Begins a command."""
    begun = list[Began]()

    def begin(*words: object, ignored: tuple[int, ...] = ()) -> Began:
        begun.append(Began(beginner, [str(word) for word in words], tmp_path, ignored))
        return begun[-1]

    yield begin
    for one in begun:
        for process in session(one.pid):
            os.kill(process.pid, signal.SIGKILL)
        if one.runs:
            one.told()


LIFTS = ["sequential", "threaded", "vectorized", "processes", "wired"]


# a lift catches a worker of its own that outlives the run or complains
@pytest.mark.parametrize("lift, hang", [(lift, False) for lift in LIFTS] + [("processes", True), ("wired", True)])
def test_ctrl_c_ends_any_lift_while_clients_are_at_work(begin, tmp_path, lift, hang):
    run = begin("run", *SMALL, *LONG, "--lift", lift, "--out", tmp_path / "run")
    until(lambda: (tmp_path / "run" / "run.toml").exists())
    if lift in ("processes", "wired"):
        until(lambda: len(workers(run.pid)) == 2)
    if hang:
        for process in workers(run.pid):
            os.kill(process.pid, signal.SIGSTOP)
        until(lambda: all(process.state == "T" for process in workers(run.pid)))
    code, said, seconds = run.ended(signal.SIGINT)
    assert (code, said.strip()) == (130, f"apiece: interrupted; `apiece resume {tmp_path / 'run'}` continues the run.")
    assert seconds < FIVE


def test_ctrl_c_ends_a_run_that_measures_which_lift_is_fastest(begin, tmp_path):
    run = begin("run", *SMALL, *LONG, "--precision", "float64", "--out", tmp_path / "run")  # auto compiles float32
    until(lambda: len(os.listdir(f"/proc/{run.pid}/task")) >= 4)  # its own, that which waits for signals, and two
    code, said, seconds = run.ended(signal.SIGINT)
    assert (code, said.strip()) == (130, "apiece: interrupted; nothing had begun yet.") and seconds < FIVE


@pytest.mark.parametrize("number, code, name", [(signal.SIGTERM, 143, "SIGTERM"), (signal.SIGHUP, 129, "SIGHUP")])
def test_a_signal_to_all_processes_of_a_run_is_one_sentence(begin, tmp_path, number, code, name):
    """As a terminal that is closed, a container or a queue sends it: no process complains or is left. It goes on."""
    run = begin("run", *SMALL, "--rounds", "100000", "--lift", "wired", "--out", tmp_path / "run")
    until(lambda: list(tmp_path.glob("run/checkpoints/*.safetensors")))
    found, said, seconds = run.ended(number, everyone=True)
    sentence = f"apiece: ended by {name}; `apiece resume {tmp_path / 'run'}` continues the run."
    assert found == code and said.strip().splitlines()[-1] == sentence and "Traceback" not in said
    assert seconds < FIVE and cli("export", tmp_path / "run", "--out", tmp_path / "model").code == 0


def test_a_signal_that_was_to_be_ignored_is_ignored(begin, tmp_path):
    """As under nohup."""
    run = begin("run", *SMALL, "--rounds", "100000", "--out", tmp_path / "run", ignored=(signal.SIGHUP,))
    log = tmp_path / "run" / "metrics.jsonl"
    until(log.exists)
    os.kill(run.pid, signal.SIGHUP)
    before = log.stat().st_size
    until(lambda: log.stat().st_size > before + 1000)
    assert run.ended(signal.SIGTERM)[0] == 143


LEFT = """
import atexit
atexit.register(lambda: print(torch.ops.left.double(torch.tensor(21.0)).item(), flush=True))  # the last to be called
import io, torch, weakref
from apiece.system.signals import leave
weakref.finalize(leave, io.BytesIO().close)  # a function of no module
library = torch.library.Library("left", "DEF")
library.define("double(Tensor x) -> Tensor")
library.impl("double", lambda x: 2 * x)
leave(7)
"""


def test_threads_may_compute_until_the_process_ends():
    """Without torch's operators, which it takes away at exit, they would end it with another code: SIGSEGV's."""
    done = subprocess.run([sys.executable, "-c", LEFT], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (7, "42.0", "")


@pytest.mark.parametrize("words", ["grid --rows fedavg,scaffold --columns nothing", "run --seeds 0,1"])
def test_it_is_said_how_a_command_of_many_runs_goes_on(begin, tmp_path, words):
    run = begin(*words.split(), *SMALL, *LONG, "--lift", "sequential", "--out", tmp_path / "out")
    until(lambda: list(tmp_path.glob("out/**/split.npz")))
    code, said, seconds = run.ended(signal.SIGINT)
    resumed = f"`apiece resume {tmp_path / 'out'}` continues the run"
    again = "the same grid again continues it" if "grid" in words else resumed
    last = said.strip().splitlines()[-1]  # a grid says which cell it is at
    assert (code, last) == (130, f"apiece: interrupted; {again}.") and seconds < FIVE


def test_without_a_folder_nothing_goes_on(begin):
    """And the copies of clients' samples in the temporary folder are gone."""
    run = begin("run", *SMALL, *LONG, "--lift", "wired")
    until(lambda: len(workers(run.pid)) == 2)
    code, said, seconds = run.ended(signal.SIGINT)
    assert (code, said.strip()) == (130, "apiece: interrupted; nothing was saved, as no --out was given.")
    assert seconds < FIVE


STUCK = """
import hashlib
from apiece.system import signals

with signals.heeded():
    print("at it", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"one call", b"of C", (1 << 31) - 1)
"""


def test_one_long_call_in_the_main_thread_is_not_waited_for():
    with subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline()
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 143 and time.monotonic() - began < FIVE


# --- the pieces of it --------------------------------------------------------------------------------------
def echo(pipe: Any) -> None:
    while True:
        pipe.send_bytes(pipe.recv_bytes())


@pytest.fixture
def pool() -> Iterator[processes.Pool]:
    pool = processes.Pool([], echo, patience=0.4)
    yield pool
    pool.close()


@pytest.mark.parametrize("size", [1, 1 << 22], ids=["none is read", "none is taken"])
def test_silence_is_noticed_while_sending_too(pool, size):
    live = pool.begin()
    live.pipe.send_bytes(b"a message")  # not in the pool's time: a process begins by importing
    assert live.pipe.recv_bytes() == b"a message"
    os.kill(live.process.pid, signal.SIGSTOP)
    with pytest.raises(processes.Silent, match="said nothing for 0.4"), pool.speaking(live):
        live.pipe.send_bytes(bytes(size))
        live.pipe.recv_bytes()
    assert not live.process.is_alive() and not pool.pids()


def test_patience_counts_from_the_slowest_answer(pool):
    live = pool.begin()
    with pool.speaking(live):
        time.sleep(0.6)
    with pytest.raises(processes.Silent) as silent, pool.speaking(live):
        live.pipe.recv_bytes()
    assert float(str(silent.value).split()[3]) >= 1.0


def test_no_process_is_begun_once_the_pool_is_closed(pool):
    live = pool.begin()
    pool.close()
    assert not live.process.is_alive()
    with pytest.raises(processes.Ended):
        pool.begin()


def test_jobs_that_nobody_waits_for_are_not_begun():
    begun: list[int] = []

    def job(number: int) -> int:
        begun.append(number)
        time.sleep(0.05)
        return number

    threads = Threaded(2)
    answers = threads.in_order(lambda n=n: job(n) for n in range(100))
    assert next(answers) == 0
    answers.close()  # type: ignore[attr-defined]
    seen = len(begun)
    threads.close()
    threads._pool.shutdown()
    assert len(begun) == seen <= 4


def test_wired_clients_that_hang_are_replaced(monkeypatch, caplog):
    from dataclasses import replace

    from support.wired import CONFIG, same, sequential

    from apiece.experiment.launch import run_config

    opened, seen, stopped = WiredClients.open, set[Path](), list[str]()

    def watched(*given: Any) -> WiredClients:
        clients = opened(*given)
        take = clients.transport.processes._take

        def stop(folder: Path) -> processes.Live:
            live = take(folder)
            if folder in seen and not stopped:
                stopped.append(folder.name)
                clients.transport.processes._pool.patience = 2.0  # beyond the slowest answer until now
                os.kill(live.process.pid, signal.SIGSTOP)
            seen.add(folder)
            return live

        clients.transport.processes._take = stop
        return clients

    monkeypatch.setattr(WiredClients, "open", watched)
    config = replace(CONFIG, rounds=2)
    assert same(run_config(config)[0], sequential(config))
    (name,) = stopped
    assert any(f"process of client {name!r} said nothing for" in message for message in caplog.messages)
