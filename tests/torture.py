"""SIGKILL at random moments, for every algorithm and composition: what comes out is bitwise the run never killed.

    python tests/torture.py --out docs/results/torture.md [--kills 100] [--minutes 30] [--seed 0] [NAME ...]

Everything is imported once; every life of a run is a fork of that parent, and is killed after a random share of the
time that the whole run takes. A run that ends is compared, and the next one begins, until so many kills were survived.
The table holds what the runs gave and nothing else; the exit code is 1 where any differs.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import torch
from recipes import RECIPES, SMALL, result

from driftless import report
from driftless.assemble import assemble
from driftless.config import Config
from driftless.launch import federate

SETTINGS = SMALL | {"rounds": 12, "eval_every": 3, "checkpoint_every": 2}


class Tally(NamedTuple):
    """What became of one recipe."""

    kills: int = 0  # lives that ended by SIGKILL
    torn: int = 0  # of these, before the first checkpoint
    compared: int = 0  # runs that were killed at least once, ended, and were compared
    differing: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        return "yes" if self.compared and not self.differing else "**no**" if self.differing else "none ended"


def live(folder: Path, settings: dict[str, Any]) -> None:
    """One life of a run: begin it or go on with it. Ends the process."""
    code = 1
    try:
        torch.set_num_threads(1)
        report.write_report = lambda *_: folder  # a page takes longer than the run, and is made from what is compared
        federate(out=str(folder), resume=True, **(SETTINGS | settings))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def start(folder: Path, settings: dict[str, Any]) -> int:
    """A life in a process of its own."""
    child = os.fork()
    if not child:
        live(folder, settings)
    return child


def torment(name: str, kills: int, until: float, rng: random.Random, scratch: Path) -> Tally:
    """Kill runs of one recipe until so many kills were survived, or time is up."""
    takes = 0.0
    for whole in ("whole", "again"):
        began = time.monotonic()
        if os.waitpid(start(scratch / whole, RECIPES[name]), 0)[1]:
            return Tally(differing=("a run that nobody killed",))
        takes = time.monotonic() - began
    expected, tally, number = result(scratch / "whole"), Tally(), 0
    if result(scratch / "again") != expected:
        return Tally(differing=("two runs that nobody killed",))
    while (tally.kills < kills and time.monotonic() < until or not tally.compared) and not tally.differing:
        folder, struck, number = scratch / f"run-{number}", 0, number + 1
        while True:
            child = start(folder, RECIPES[name])
            if struck < 20:  # then it may live
                time.sleep(rng.uniform(0, 0.8 * takes))
                os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            if not os.WIFSIGNALED(status):
                break
            struck += 1
            begun = any((folder / "checkpoints").glob("round-*.safetensors"))
            tally = tally._replace(kills=tally.kills + 1, torn=tally.torn + (not begun))
        if os.waitstatus_to_exitcode(status):
            return tally._replace(differing=("it did not go on",))
        found = result(folder)
        if struck:
            differing = tuple(part for part in expected if found[part] != expected[part])
            tally = tally._replace(compared=tally.compared + 1, differing=differing)
        shutil.rmtree(folder)
    return tally


def page(tallies: dict[str, Tally], seconds: float) -> str:
    """The table as Markdown."""
    settings = ", ".join(f"{key}={value}" for key, value in SETTINGS.items())
    lines = [
        "# Killed and resumed",
        "",
        f"Runs on the bundled digits ({settings}),",
        "each life in a process of its own ended by SIGKILL at a random moment, then resumed, until the run",
        "came to its end. Compared with a run that nobody killed, bit by bit: the log of every round (but seconds),",
        "the server's vector, memory and optimiser, every client's row (by digest), each client's accuracy, the model.",
        f"`python tests/torture.py`, {seconds / 60:.0f} minutes, torch {torch.__version__}, {platform.machine()}.",
        "",
        "| run | kills survived | of these before a first checkpoint | runs compared | bitwise equal |",
        "|---|---:|---:|---:|---|",
    ]
    lines += [f"| {name} | {t.kills} | {t.torn} | {t.compared} | {t.verdict} |" for name, t in tallies.items()]
    lines += [f"\n{name}: {', '.join(t.differing)} differed." for name, t in tallies.items() if t.differing]
    total = sum(t.kills for t in tallies.values())
    return "\n".join([*lines, "", f"{total} kills in all."]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="SIGKILL at random moments, for every algorithm and composition.")
    parser.add_argument("--out", type=Path, default=Path("torture.md"), help="the table, as Markdown")
    parser.add_argument("--kills", type=int, default=100, help="kills for each (default 100)")
    parser.add_argument("--minutes", type=float, default=60.0, help="no new run after so long (default 60)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which (default: all of {'; '.join(RECIPES)})")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    assemble(Config(**SETTINGS))  # everything is imported now, and no thread begun
    names, began = asked.names or list(RECIPES), time.monotonic()
    if unknown := set(names) - set(RECIPES):
        parser.error(f"there is no {', '.join(unknown)}; there are {'; '.join(RECIPES)}")
    tallies: dict[str, Tally] = {}
    for place, name in enumerate(names):
        share = (asked.minutes * 60 - (time.monotonic() - began)) / (len(names) - place)  # of the time that is left
        with tempfile.TemporaryDirectory() as scratch:
            until = time.monotonic() + share
            tallies[name] = torment(name, asked.kills, until, random.Random(f"{asked.seed} {name}"), Path(scratch))
        print(f"{name}: {tallies[name]}", flush=True)
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(page(tallies, time.monotonic() - began))
    return int(any(t.verdict != "yes" for t in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
