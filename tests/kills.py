"""`make kills`: deployed runs whose processes are killed at random moments; each must be the run that nobody killed.

    python tests/kills.py [--kills 100] [--runs 10] [--each 10] [--rounds 5] [--apart 5 30] [--away] [--seed 0]
                          [--only scaffold] [--lines docs/results/kills.jsonl] [--out docs/results/kills.md]

A victim is a node's process (`apiece join`, its SuperNode, the process that is started for a message), or the
coordinator's (`apiece serve`, SuperLink, the server's app), or a SuperExec of either; sometimes two at once. `apiece
join` and `serve` start again after fifteen seconds, as systemd starts them; all other processes are theirs to start
again. With `--away`, all of a node's processes are killed once more in each run, and stay away until a round was done
without the node: the run must be the one in which it was absent then. Each run adds a line to `--lines`, and the page
is made of all lines there, and of `kills.notes.md` beside it: a command that is ended goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rehearsal import USUAL  # of this folder
from support.slots import SLOTS

from apiece.config.settings import Config
from apiece.deploy import rehearsal
from apiece.deploy.rehearsal import Deployment
from apiece.deploy.request import Terms
from apiece.experiment.launch import run_config

AGAIN = 15.0  # seconds until systemd starts a process again
SOON, LATE = 600.0, 45.0  # the deadline for nodes that are back in time, and for one that is not
LONGEST = 1800.0  # seconds of a run
MISSING = re.compile(r"(.*) did not answer in time\.")  # of a phase
WITHOUT = re.compile(r"round (\d+): \d+ of \d+ nodes did not count")
KINDS = {
    "apiece join": "apiece join",
    "apiece serve": "apiece serve",
    "flower-supernode": "SuperNode",
    "flwr-clientapp": "process of a message",
    "flower-superlink": "SuperLink",
    "flower-superexec": "SuperExec",
    "flwr-serverapp": "server's app",
}
COORDINATOR = ("apiece serve", "SuperLink", "server's app")


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


def kill_all(process: subprocess.Popen) -> list[str]:
    """Kill a process and all that descend from it; gives what they were."""
    there = family([process.pid])
    for number in sorted(there):  # `apiece join` first, which would start the others again
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    return list(there.values())


@dataclass(eq=False)
class Killer(threading.Thread):
    """Kills until so many died, starts again what nobody else does, and notes when rounds were done."""

    made: Deployment
    metrics: Path
    most: int
    apart: tuple[float, float]  # seconds between kills
    drawn: random.Random
    away: str = ""  # a node that stays away until a round was done without it
    log: Path = Path()  # the coordinator's, of this run
    over: bool = False
    killed: list[tuple[str, float]] = field(default_factory=list)  # what, and when
    rounds: list[float] = field(default_factory=list)  # when each was done

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def run(self) -> None:
        due, ended = time.monotonic() + self.drawn.uniform(*self.apart), dict[str, float]()
        leaves = time.monotonic() + self.drawn.uniform(*self.apart)
        while not self.over:
            if self.away and self.rounds and time.monotonic() > leaves:  # the run begins with all nodes
                self._leave()
            self._restart(ended)
            self._note()
            if time.monotonic() > due and len(self.killed) < self.most:
                for kind in self.drawn.sample(sorted(KINDS.values()), 1 if self.drawn.random() < 0.7 else 2):
                    self._kill(kind)
                due = time.monotonic() + self.drawn.uniform(*self.apart)
            time.sleep(0.1)

    def _leave(self) -> None:
        """Kill all that the node has running, until a round was done without it."""
        self.killed += [(kind, time.monotonic()) for kind in kill_all(self.made.processes[self.away])]
        if any(self.away in names for names in absences(self.log).values()):
            self.away = ""

    def _restart(self, ended: dict[str, float]) -> None:
        for name, process in self.made.processes.items():
            if process.poll() is not None and name != self.away:
                ended.setdefault(name, time.monotonic())
                if time.monotonic() - ended[name] > AGAIN:
                    self.made.begin(name)
                    del ended[name]

    def _note(self) -> None:
        """Note the moment of each round that is done for the first time."""
        lines = self.metrics.read_text().splitlines() if self.metrics.is_file() else []
        with suppress(ValueError):  # the last line is being written
            done = max((json.loads(line)["round"] for line in lines), default=0)
            self.rounds += [time.monotonic()] * (done - len(self.rounds))

    def _kill(self, kind: str) -> None:
        """Kill a process of this kind, if there is one within a while: that of a message lives for seconds alone."""
        end, into = time.monotonic() + 20.0, self.drawn.uniform(0.0, 2.0)
        while time.monotonic() < end and not self.over:
            there = [n for n, of in family([p.pid for p in self.made.processes.values()]).items() if of == kind]
            if there and kind == "process of a message":
                time.sleep(into)
            with suppress(ProcessLookupError, IndexError):
                os.kill(self.drawn.choice(sorted(there)), signal.SIGKILL)
                self.killed.append((kind, time.monotonic()))
                print(f"{time.strftime('%H:%M:%S')} killed: {kind}", flush=True)
                return
            self._note()
            time.sleep(0.1)

    def after(self) -> list[tuple[str, float]]:
        """For each death of the coordinator's, the seconds until the next round was done, if one was."""
        found = [(kind, min((r - when for r in self.rounds if r > when), default=None)) for kind, when in self.killed]
        return [(kind, round(seconds, 1)) for kind, seconds in found if seconds is not None and kind in COORDINATOR]

    def usual(self) -> list[float]:
        """The seconds of each round in which, and in the round before which, nothing was killed."""
        quiet = lambda begin, end: not any(begin < when < end for _, when in self.killed)
        starts = [float("-inf"), *self.rounds]
        return [round(b - a, 1) for i, (a, b) in enumerate(pairwise(self.rounds)) if quiet(starts[i], b)]


def absences(log: Path) -> dict[int, list[str]]:
    """Who was absent in each round 1, 2, ... in which somebody was, as the coordinator's log has it; of a round that
    was begun again, the last time counts.
    """
    found, missing = dict[int, list[str]](), list[str]()
    for line in log.read_text(encoding="utf-8").splitlines() if log.is_file() else ():
        if said := MISSING.search(line):
            missing = re.findall(r"'([^']+)'", said[1])
        elif said := WITHOUT.search(line):
            found[int(said[1])] = missing
    return found


def struck(made: Deployment, config: Config, number: str, killer: Killer, terms: Terms) -> dict[str, Any]:
    """A run with kills, as a line: what was killed, who was absent when, and in what it differs from the run in which
    nobody was killed, and who was absent was so for no reason.
    """
    home, names, began = made.home, made.names, time.monotonic()
    request = rehearsal.ask_for(config, home, f"deployed-{number}", terms)
    killer.log = request.log
    killer.start()
    while (ended := request.ended()) is None and time.monotonic() - began < LONGEST:
        time.sleep(0.5)
    killer.over = True
    killer.join()
    killer._note()
    seconds = round(time.monotonic() - began)
    for name in {"serve", *names}:
        if made.processes[name].poll() is not None:
            made.begin(name)
    gone = absences(request.log)

    def absent(seed: int, round: int, known: list[str], cohort: list[int], share: float) -> frozenset[int]:
        return frozenset(client for client in cohort if known[client] in gone.get(round + 1, ()))

    with patch("apiece.config.assemble.absent", absent):
        run_config(replace(config, out=str(home / f"wired-{number}")), progress=False)
    where = f"deployed-{number}", f"wired-{number}", request.name
    found = rehearsal.differences(home, names, *where) if ended == "done" else [ended or "it did not end"]
    line = {"algorithm": config.algorithm, "rounds": config.rounds, "killed": [kind for kind, _ in killer.killed]}
    line |= {"seconds": seconds, "after": killer.after(), "usual": killer.usual(), "differ": found[:3]}
    return line | {"absent": {str(round): who for round, who in gone.items()}}


def main() -> None:
    """Runs with kills, one after the other, until there are so many; the page is written after each."""
    flags = argparse.ArgumentParser()
    flags.add_argument("--kills", type=int, default=100)
    flags.add_argument("--runs", type=int, default=10)
    flags.add_argument("--each", type=int, default=10)
    flags.add_argument("--rounds", type=int, default=5)
    flags.add_argument("--apart", type=float, nargs=2, default=(5.0, 30.0))
    flags.add_argument("--away", action="store_true")
    flags.add_argument("--seed", type=int, default=0)
    flags.add_argument("--only", default="")
    flags.add_argument("--lines", type=Path, default=Path("docs/results/kills.jsonl"))
    flags.add_argument("--out", type=Path, default=Path("docs/results/kills.md"))
    given = flags.parse_args()
    lines = [json.loads(line) for line in given.lines.read_text().splitlines()] if given.lines.exists() else []
    given.lines.parent.mkdir(parents=True, exist_ok=True)
    chosen = [name for name in SLOTS if given.only in name]
    terms = Terms(3, 1, LATE) if given.away else Terms(3, 3, SOON)
    with tempfile.TemporaryDirectory(prefix="apiece-kills-") as folder:
        home, usual = Path(folder), rehearsal.both(replace(USUAL, rounds=given.rounds), 3)
        with rehearsal.deployment(home, rehearsal.deal(usual, home), print) as made:
            while len(lines) < given.runs or sum(len(line["killed"]) for line in lines) < given.kills:
                number, algorithm = len(lines), chosen[len(lines) % len(chosen)]
                drawn = random.Random(f"{given.seed} {number}")
                config = replace(usual, algorithm=algorithm, **SLOTS[algorithm])
                away = drawn.choice(made.names) if given.away else ""
                metrics = home / f"deployed-{number}" / "metrics.jsonl"
                killer = Killer(made, metrics, given.each, tuple(given.apart), drawn, away)
                lines.append(struck(made, config, str(number), killer, terms))
                print(json.dumps(lines[-1]), flush=True)
                with open(given.lines, "a") as log:
                    log.write(json.dumps(lines[-1]) + "\n")
                given.out.write_text(page(lines) + notes(given.out))
    if any(line["differ"] for line in lines):
        sys.exit("a run with kills is another run")


def page(lines: list[dict[str, Any]]) -> str:
    """The page of these runs."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    packages = ", ".join(f"{name} {version(name)}" for name in ("apiece", "torch", "flwr"))
    killed, differing = [kind for line in lines for kind in line["killed"]], [line for line in lines if line["differ"]]
    usual = [seconds for line in lines for seconds in line["usual"]]
    lasts = f"{statistics.median(usual):.0f} seconds (median of {len(usual)})" if usual else ""
    quiet = f" A round in which, and before which, nothing was killed takes\n{lasts}." if usual else ""
    rows = [
        f"| `{name}` | {len(own)} | {sum(len(line['killed']) for line in own)} | "
        f"{'**no**' if any(line['differ'] for line in own) else 'yes'} |"
        for name in SLOTS
        if (own := [line for line in lines if line["algorithm"] == name])
    ]
    kinds = []
    for kind in KINDS.values():
        after = [seconds for line in lines for of, seconds in line["after"] if of == kind]
        told = f"{statistics.median(after):.0f} | {max(after):.0f}" if after else "– | –"
        kinds.append(f"| {kind} | {killed.count(kind)} | {told} |")
    return f"""# Deployed runs whose processes are killed

`make kills` wrote this page, last at commit {commit.strip()} on {time.strftime("%Y-%m-%d")}: {packages},
Python {platform.python_version()}, {os.cpu_count()} cores that other programs used, too. A server and three
nodes run on one machine, with TLS and a key for each node. At random moments, half a minute apart at most, SIGKILL
ends a process that is drawn, in three of ten cases two. `apiece join` and `apiece serve` start again after {AGAIN:g}
seconds, as systemd starts them. The quorum is three and the deadline ten minutes, so that all nodes are back in time,
and each run must be the run that nobody killed: the server's whole state, what each node remembers, and the ledger of
every round, to the bit.

**{len(killed)} kills in {len(lines)} runs; {len(differing)} runs differed.**
{missed(lines)}
| algorithm | runs | kills | the same to the bit |
|---|---:|---:|---|
{chr(10).join(rows)}

From the death of a process of the coordinator's to the end of the next round, whatever else was killed meanwhile, and
with the rest of the round in which it died.{quiet}

| what was killed | kills | seconds to the next round, median | longest |
|---|---:|---:|---:|
{chr(10).join(kinds)}
""" + "".join(f"\n`{line['algorithm']}`: {line['differ'][0]}.\n" for line in differing)


def notes(out: Path) -> str:
    """What a person wrote beside the page, in NAME.notes.md."""
    beside = out.with_suffix(".notes.md")
    return f"\n{beside.read_text()}" if beside.exists() else ""


def missed(lines: list[dict[str, Any]]) -> str:
    """What the page says of runs in which a node missed the deadline; "" if there are none."""
    late = [line for line in lines if line.get("absent")]
    rounds = sum(len(line["absent"]) for line in late)
    if not late:
        return ""
    return f"""
In {len(late)} of them all processes of one node were killed, too, and stayed away until a round was done without it.
The quorum was one there, and the deadline {LATE:g} seconds. {rounds} rounds had an absent node. Each of these runs must
be the run without kills in which that node was absent in those rounds.
"""


if __name__ == "__main__":
    main()
