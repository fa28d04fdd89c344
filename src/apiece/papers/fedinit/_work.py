"""How the cells of FedInit's cards are run that are no plain runs: to a target, and timed beside FedAvg."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from apiece.config.assemble import assemble
from apiece.config.tables import from_table
from apiece.experiment.choice import lift_of, seconds
from apiece.papers.fedinit._setup import METHODS, READ
from apiece.reproduce.table import OutOfReach, Table, Where
from apiece.reproduce.work import runs

HALVES = ("high", "low")
TARGETS = {"resnet18_gn": (0.70, 0.65), "cnn_fedcog": (0.35, 0.30), "cnn": (0.10, 0.05)}  # of the scales, by model


def to_targets(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """One run, and what it took to reach both targets; a target that was not reached has no numbers."""
    readings = dict(READ)
    for name, target in zip(HALVES, TARGETS[settings["model"]], strict=True):
        readings[f"rounds_{name}"] = lambda run, t=target: (cost := run.to_target(t)) and float(cost.rounds)
        readings[f"seconds_{name}"] = lambda run, t=target: (cost := run.to_target(t)) and cost.seconds
    return runs(**readings)(settings, folder)


def took(t: Table, where: Where, number: str) -> float:
    """The mean of what a target took; infinite where a seed did not reach it, OutOfReach where the cell was not run."""
    try:
        return t.mean(where, number)
    except OutOfReach:
        t.of(where, "last")  # which every run has
        return inf


def timed(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Seconds a round, and their ratio to FedAvg's: a round of FedAvg and one of the row's algorithm in turn, each from
    the initial model, so that what else the machine does falls on both.
    """
    both = [assemble(from_table({**settings, **more}, str(folder))) for more in (METHODS["FedAvg"], {})]
    lifts = [lift_of(one).lift for one in both]
    turns = [
        [seconds(one, lift, one.plan(number).cohort, number) for one, lift in zip(both, lifts, strict=True)]
        for number in range(settings["rounds"] + 1)
    ][1:]  # the first round warms caches, and compiles
    return {"seconds": median(own for _, own in turns), "ratio": median(own / plain for plain, own in turns)}
