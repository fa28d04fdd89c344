"""How soon a node is back: from the start of `apiece join`, after all its processes were killed, until the server lets
it in, and to its first answer.

    python tests/rejoins.py [--times 10] [--apart 12] [--down 15] [--seed 0]

A server and three nodes run one endless run on one machine, with TLS and keys. Each time, SIGKILL ends all processes
of one node at a random moment of a round, and `apiece join` starts again after `--down` seconds, as systemd starts it.
The server lets in no node whose last session has not expired, a minute after its last sign of life. The quorum is
three, so that the others wait. A line is printed for each time, and the medians and the longest at the end.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kills import kill_all  # of this folder
from rehearsal import USUAL

from apiece.deploy import rehearsal
from apiece.deploy.rehearsal import Deployment
from apiece.deploy.request import Terms

ROUNDS = 10_000  # more than are done


def answered(made: Deployment, name: str) -> float:
    """When the node last wrote what it answers a message with; 0 if it never did."""
    times = [0.0]
    for file in (made.home / "nodes" / name / "runs").rglob("*"):
        with suppress(FileNotFoundError):  # an answer that is no longer needed is removed
            times.append(file.stat().st_mtime)
    return max(times)


def let_in(made: Deployment) -> int:
    """How often the server has let a node in."""
    return (made.home / "serve" / "log" / "superlink.log").read_text(errors="replace").count("Activated node_id=")


def rejoin(made: Deployment, name: str, down: float) -> tuple[float, float]:
    """Kill all that a node has running, start it again, and give the seconds from there until it is let in, and to its
    next answer.
    """
    kill_all(made.processes[name])
    made.processes[name].wait()
    time.sleep(down)
    before, began = let_in(made), time.time()
    made.begin(name)
    while let_in(made) == before:
        time.sleep(0.1)
    there = time.time() - began
    while answered(made, name) <= began:
        time.sleep(0.1)
    return there, time.time() - began


def main() -> None:
    """Kill and start again so many times, and say how long each took."""
    flags = argparse.ArgumentParser()
    flags.add_argument("--times", type=int, default=10)
    flags.add_argument("--apart", type=float, default=12.0)
    flags.add_argument("--down", type=float, default=15.0)
    flags.add_argument("--seed", type=int, default=0)
    given = flags.parse_args()
    drawn, found = random.Random(given.seed), list[tuple[float, float]]()
    with tempfile.TemporaryDirectory(prefix="apiece-rejoins-") as folder:
        home = Path(folder)
        config = rehearsal.both(replace(USUAL, rounds=ROUNDS, algorithm="scaffold"), 3)
        with rehearsal.deployment(home, rehearsal.deal(config, home), print) as made:
            rehearsal.ask_for(config, home, "deployed", Terms(3, 3, 600.0))
            while not all(answered(made, name) for name in made.names):
                time.sleep(0.1)
            for _ in range(given.times):
                time.sleep(drawn.uniform(0.0, given.apart))
                found.append(rejoin(made, drawn.choice(made.names), given.down))
                print("let in after {:.1f} s, answered after {:.1f} s".format(*found[-1]), flush=True)
    for what, times in zip(("let in", "answered"), zip(*found, strict=True), strict=True):
        print(f"{what}: median {statistics.median(times):.0f} s, longest {max(times):.0f} s, of {len(times)}")


if __name__ == "__main__":
    main()
