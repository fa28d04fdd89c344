"""`make rehearsal`: deployed runs on one machine, with certificates and keys, against those of `--lift wired`.

    python tests/rehearsal.py [--out docs/results/rehearsal.md] [--rounds 2]

One server and three nodes run one algorithm after the other. The page has a row for each.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from support.slots import SLOTS

from apiece.config.settings import Config
from apiece.deploy import rehearsal
from apiece.deploy.rehearsal import Outcome
from apiece.deploy.request import Terms

NODES = 3
USUAL = Config(steps="3", split="iid", eval_every=99)
COLUMNS = (
    "algorithm, the same to the bit, rounds, phases, seconds a phase, a phase without work, bytes by the ledger, "
    "bytes of frames"
)
HEAD = f"| {COLUMNS.replace(', ', ' | ')} |"


def row(config: Config, outcome: Outcome, measured: int) -> str:
    """A row of the page; the last `measured` phases only measure."""
    phases = outcome.phases[: len(outcome.phases) - measured]
    seconds = sum(phase.seconds for phase in phases) / len(phases)
    ledger = sum(outcome.rounds[-1][name] for name in ("bytes_down", "bytes_up"))
    frames = sum(phase.down + phase.up for phase in phases)
    more = f"{100 * (frames / ledger - 1):+.1f} %"
    same = "yes" if not outcome.differences else f"**no**: {outcome.differences[0]}"
    cells = [f"`{config.algorithm}`", same, config.rounds, len(phases), f"{seconds:.1f}", f"{outcome.floor:.1f}"]
    return "| " + " | ".join(map(str, [*cells, f"{ledger:,}", f"{frames:,} ({more})"])) + " |"


def main() -> None:
    """Run all, and write the page after each."""
    flags = argparse.ArgumentParser()
    flags.add_argument("--out", default="docs/results/rehearsal.md")
    flags.add_argument("--rounds", type=int, default=2)
    flags.add_argument("--only", default="")
    given = flags.parse_args()
    rows, began = [], time.strftime("%Y-%m-%d")
    with tempfile.TemporaryDirectory(prefix="apiece-rehearsal-") as folder:
        home, usual = Path(folder), rehearsal.both(replace(USUAL, rounds=given.rounds), NODES)
        names = rehearsal.deal(usual, home)
        with rehearsal.deployment(home, names, print) as made:
            for place, (algorithm, settings) in enumerate(SLOTS.items()):
                if given.only and given.only not in algorithm:
                    continue
                config = replace(usual, algorithm=algorithm, **settings)
                outcome = rehearsal.tried(config, made, Terms(NODES, NODES, 600.0), print, f"-{place}")
                rows.append(row(config, outcome, 4 if algorithm.startswith("pefll") else 2))
                print(rows[-1], flush=True)
                Path(given.out).write_text(page(rows, began, given.rounds))
    if any("**no**" in line for line in rows):
        sys.exit("a deployed run differs")


def page(rows: list[str], day: str, rounds: int) -> str:
    """The page of these rows."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    packages = ", ".join(f"{name} {version(name)}" for name in ("apiece", "torch", "flwr"))
    load = f"{os.getloadavg()[1]:.0f}"
    return f"""# A rehearsal: deployed runs against `--lift wired`

`make rehearsal` wrote this page on {day}, at commit {commit.strip()}: {packages}, Python {platform.python_version()},
{os.cpu_count()} cores, load {load} at the end. A server and {NODES} nodes run on one machine, with TLS and a key for
each node. One row is `apiece rehearse --nodes {NODES} --rounds {rounds} --steps 3 --split iid --eval-every 99` with its
algorithm. The same to the bit: the server's whole state after the last round, what each node remembers, and the ledger
of every round. A phase is one message to each node and its answer. In a phase without work nodes only tell of their
data: that is Flower's floor. Frames are the bytes that Flower gets from us; the ledger counts the messages in them.

{HEAD}
|---|---|---|---|---|---|---|---|
""" + "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
