"""SIGKILL at random moments, for every algorithm and composition: what comes out is bitwise the run never killed.

    python tests/torture.py --out docs/results/torture.md [--kills 100] [--minutes 30] [--seed 0] [NAME ...]

Everything is imported once; every life of a run is a fork of that parent. It says each round that it has done, and is
killed after a random number of them, at a random moment of what comes next: a beginning, a round, its log, its
checkpoint, or the end. A run that ends is compared, and the next one begins, until so many kills were survived, some of
them after a checkpoint. The table holds what the runs gave and nothing else; the exit code is 1 where any differs.
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
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from support.recipes import RECIPES, SMALL, result

from apiece.config.assemble import assemble
from apiece.config.settings import Config
from apiece.experiment.launch import federate
from apiece.report import page as report

SETTINGS = SMALL | {"rounds": 12, "eval_every": 3, "checkpoint_every": 2}
LONGEST = 6  # rounds that a life is let do


class Tally(NamedTuple):
    """What became of one recipe."""

    kills: int = 0  # lives that ended by SIGKILL
    torn: int = 0  # of these, before the first checkpoint
    compared: int = 0  # runs that were killed at least once, ended, and were compared
    differing: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        return "**no**" if self.differing else "yes" if self.settled else "none ended"

    @property
    def settled(self) -> bool:
        """Whether a run was compared, and a checkpoint gone on from."""
        return self.compared > 0 and self.torn < self.kills


def live(folder: Path, settings: dict[str, Any], said: int) -> None:
    """One life of a run: begin it or go on with it, and say the rounds that it has done. Ends the process."""
    code = 1
    try:
        torch.set_num_threads(1)
        report.write_report = lambda *_: folder  # a page takes longer than the run, and is made from what is compared
        tell = lambda info: os.write(said, bytes([info["round"]]))
        federate(out=str(folder), resume=True, on_round=tell, **(SETTINGS | settings))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


class Life(NamedTuple):
    """A life in a process of its own, and the pipe that it says its rounds through."""

    child: int
    heard: int

    @classmethod
    def start(cls, folder: Path, settings: dict[str, Any]) -> Life:
        heard, said = os.pipe()
        child = os.fork()
        if not child:
            live(folder, settings, said)
        os.close(said)
        return cls(child, heard)

    def next(self) -> int | None:
        """The next round that it has done; nothing where it has ended."""
        told = os.read(self.heard, 1)
        return told[0] if told else None

    def end(self) -> int:
        """How it ended, as of `os.waitpid`."""
        status = os.waitpid(self.child, 0)[1]
        os.close(self.heard)
        return status


def unhurt(folder: Path, settings: dict[str, Any]) -> list[float] | None:
    """A run that nobody kills: the seconds before round 1 is done, before each other, and to the end."""
    times, life = [time.monotonic()], Life.start(folder, settings)
    while life.next() is not None:
        times.append(time.monotonic())
    if life.end():
        return None
    times.append(time.monotonic())
    return [after - before for before, after in pairwise(times)]


def strike(life: Life, takes: list[float], rng: random.Random) -> None:
    """Kill a life after up to half of a run's rounds, at a random moment before the next round is done."""
    done: int | None = 0
    for _ in range(rng.randint(0, LONGEST)):
        done = life.next()
        if done is None:
            return  # it had too few left
    time.sleep(rng.uniform(0, takes[done]))
    os.kill(life.child, signal.SIGKILL)


def torment(name: str, kills: int, until: float, rng: random.Random, scratch: Path) -> Tally:
    """Kill runs of one recipe until so many kills were survived, or time is up."""
    whole, again = (unhurt(scratch / folder, RECIPES[name]) for folder in ("whole", "again"))
    if whole is None or again is None:
        return Tally(differing=("a run that nobody killed",))
    expected, tally, number = result(scratch / "whole"), Tally(), 0
    if result(scratch / "again") != expected:
        return Tally(differing=("two runs that nobody killed",))
    while (tally.kills < kills and time.monotonic() < until or not tally.settled) and not tally.differing:
        folder, struck, number = scratch / f"run-{number}", 0, number + 1
        while True:
            life = Life.start(folder, RECIPES[name])
            if struck < 20:  # then it may live
                strike(life, again, rng)
            status = life.end()
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


def page(tallies: dict[str, Tally], kills: int, seconds: float) -> str:
    """The table as Markdown."""
    settings = ", ".join(f"{key}={value}" for key, value in SETTINGS.items())
    lines = [
        "# Killed and resumed",
        "",
        f"Runs on the bundled digits ({settings}).",
        f"SIGKILL ended each process of a run after 0 to {LONGEST} rounds, at a random moment before the next round",
        "was done; the run was then resumed, until it ended. Rounds count when the process has reported them, so that",
        "kills also come after a checkpoint, however long a round takes. The run was compared bit by bit with a",
        "run that nobody killed: the log of every round (except seconds), the server's vector, memory and optimizer,",
        "every client's row (by digest), each client's accuracy, the model.",
        f"`python tests/torture.py --kills {kills}`, {seconds / 60:.0f} minutes, torch {torch.__version__},"
        f" {platform.machine()}.",
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
        asked.out.write_text(page(tallies, asked.kills, time.monotonic() - began))
    return int(any(t.verdict != "yes" for t in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
