"""Deployed runs whose processes are killed at random moments: each must be the run that nobody killed.

    python tests/kills.py [--kills 10] [--rounds 4] [--seed 0] [--only scaffold] [--out docs/results/kills.md]

A victim is a node's processes (`apiece join`, its SuperNode, the process of a message), or the coordinator's (`apiece
serve`, SuperLink, SuperExec, the server's app); sometimes two at once. `apiece join` and `serve` start again after
fifteen seconds, as systemd starts them; all other processes are theirs to start again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rehearsal import USUAL  # of this folder
from support.slots import SLOTS

from apiece.deploy import rehearsal
from apiece.deploy.rehearsal import Deployment
from apiece.deploy.request import Terms
from apiece.experiment.launch import run_config

AGAIN, APART = 15.0, (10.0, 45.0)  # seconds: until systemd starts a process again, between kills
KINDS = {
    "apiece join": "apiece join",
    "apiece serve": "apiece serve",
    "flower-supernode": "SuperNode",
    "flwr-clientapp": "process of a message",
    "flower-superlink": "SuperLink",
    "flower-superexec": "SuperExec",
    "flwr-serverapp": "server's app",
}


def family(roots: list[int]) -> dict[int, str]:
    """The processes that descend from these, and these: number -> kind."""
    parents, words = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                words[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    ours, grown = set(roots), True
    while grown:
        more = {child for child, parent in parents.items() if parent in ours} - ours
        ours, grown = ours | more, bool(more)
    found = {}
    for number in ours:
        text = words.get(number, "").replace("-m apiece", "apiece")
        kind = next((said for word, said in KINDS.items() if word in text), None)
        if kind is not None:
            found[number] = kind
    return found


class Killer(threading.Thread):
    """Kills until so many died, and starts again what nobody else does."""

    def __init__(self, made: Deployment, most: int, drawn: random.Random) -> None:
        super().__init__(daemon=True)
        self.made, self.most, self.drawn, self.over = made, most, drawn, False
        self.killed: list[str] = []

    def run(self) -> None:
        due, ended = time.monotonic() + self.drawn.uniform(*APART), {}
        while not self.over:
            for name, process in self.made.processes.items():
                if process.poll() is not None:
                    ended.setdefault(name, time.monotonic())
                    if time.monotonic() - ended[name] > AGAIN:
                        self.made.begin(name)
                        del ended[name]
            if time.monotonic() > due and len(self.killed) < self.most:
                self._kill(1 if self.drawn.random() < 0.7 else 2)
                due = time.monotonic() + self.drawn.uniform(*APART)
            time.sleep(0.2)

    def _kill(self, count: int) -> None:
        by_kind: dict[str, list[int]] = {}
        for number, kind in family([p.pid for p in self.made.processes.values()]).items():
            by_kind.setdefault(kind, []).append(number)
        for kind in self.drawn.sample(sorted(by_kind), min(count, len(by_kind))):
            with suppress(ProcessLookupError):
                os.kill(self.drawn.choice(sorted(by_kind[kind])), signal.SIGKILL)
                self.killed.append(kind)
                print(f"{time.strftime('%H:%M:%S')} killed: {kind}", flush=True)


def main() -> None:
    """Runs with kills, one after the other, until the last has had its share."""
    flags = argparse.ArgumentParser()
    flags.add_argument("--kills", type=int, default=10)
    flags.add_argument("--each", type=int, default=5)
    flags.add_argument("--rounds", type=int, default=4)
    flags.add_argument("--seed", type=int, default=0)
    flags.add_argument("--only", default="")
    flags.add_argument("--log", default="")
    given = flags.parse_args()
    drawn, counted, runs, bad = random.Random(given.seed), Counter[str](), 0, list[str]()
    chosen = [name for name in SLOTS if given.only in name]
    with tempfile.TemporaryDirectory(prefix="apiece-kills-") as folder:
        home, usual = Path(folder), rehearsal.both(replace(USUAL, rounds=given.rounds), 3)
        names = rehearsal.deal(usual, home)
        with rehearsal.deployment(home, names, print) as made:
            while sum(counted.values()) < given.kills:
                algorithm = chosen[runs % len(chosen)]
                config = replace(usual, algorithm=algorithm, **SLOTS[algorithm])
                killer = Killer(made, given.each, drawn)
                request = rehearsal.ask_for(config, home, f"deployed-{runs}", Terms(3, 3, 600.0))
                began = time.monotonic()
                killer.start()
                while (ended := request.ended()) is None:
                    time.sleep(0.5)
                killer.over = True
                killer.join()
                for name in {"serve", *names}:
                    if made.processes[name].poll() is not None:
                        made.begin(name)
                run_config(replace(config, out=str(home / f"wired-{runs}")), progress=False)
                seconds = round(time.monotonic() - began)
                folders = f"deployed-{runs}", f"wired-{runs}"
                found = [ended] if ended != "done" else rehearsal.differences(home, names, *folders)
                bad += found
                counted.update(killer.killed)
                said = {"algorithm": algorithm, "killed": killer.killed, "seconds": seconds, "differ": found[:3]}
                print(json.dumps(said), flush=True)
                if given.log:
                    with open(given.log, "a") as log:
                        log.write(json.dumps(said) + "\n")
                runs += 1
    print(f"{sum(counted.values())} kills in {runs} runs: {dict(counted)}; {len(bad)} differences")
    if bad:
        sys.exit("a run with kills is another run")


if __name__ == "__main__":
    main()
